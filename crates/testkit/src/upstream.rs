//! The upstream for the MCP conformance suite.

use std::fs;

use tempfile::TempDir;

use crate::{Process, binary, eventually};

/// An MCP server with the tools that the conformance suite calls, in both eras. Killed when it is dropped.
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
        let url = eventually("the server prints its URL", async || {
            let output = fs::read_to_string(&log).unwrap_or_default();
            output.strip_suffix('\n').map(str::to_owned)
        })
        .await;
        assert!(url.starts_with("http://127.0.0.1:"), "the server printed {url}");
        Self { url, process, _folder: folder }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
