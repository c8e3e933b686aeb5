use std::fs;

use tempfile::TempDir;

use crate::{Process, binary, eventually};

/// A server that has the tools which the MCP conformance suite calls, for both eras, gone when it goes out of scope.
#[derive(Debug)]
pub struct ConformanceUpstream {
    url: String,
    process: Process,
    _folder: TempDir,
}

impl ConformanceUpstream {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let log = folder.path().join("log");
        let process = Process::start(&binary("mcp-conformance-upstream"), &[], &[], &log);
        let url = eventually("the server says where it is", async || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            said.strip_suffix('\n').map(str::to_owned)
        })
        .await;
        assert!(url.starts_with("http://127.0.0.1:"), "the server said {url}");
        Self { url, process, _folder: folder }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
