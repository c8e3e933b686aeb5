//! The node of the stack, which runs jobs in sandboxes of this machine, if the machine can sandbox.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    child,
    config::{GRACE, NODE, ProcessSpec, StackConfig},
};
use crate::error::Error;

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a node can run here.
pub(super) enum Sandboxing {
    Works,
    /// What is missing.
    Missing(String),
    /// No node is wanted.
    Unwanted,
}

/// Has the node try its engines. Jobs never run without a sandbox, so without one there is no node.
pub(super) async fn check(config: &StackConfig) -> Result<Sandboxing, Error> {
    let Some(mut spec) = config.node_spec()? else { return Ok(Sandboxing::Unwanted) };
    spec.arguments.extend(["check".to_owned(), "--engines".to_owned()]);
    let (ended, text) = child::run(&spec).await?;
    Ok(if ended.success() { Sandboxing::Works } else { Sandboxing::Missing(reason(&text)) })
}

/// Returns whether the node takes jobs.
pub(super) async fn probe(config: &StackConfig) -> bool {
    let Ok(client) = reqwest::Client::builder().no_proxy().build() else { return false };
    let url = format!("http://127.0.0.1:{}/readyz", config.node_port());
    client.get(url).timeout(PROBE_TIMEOUT).send().await.is_ok_and(|response| response.status().is_success())
}

/// Finds the reason in what a failed check wrote: the first check that failed, or the last line.
fn reason(text: &str) -> String {
    let failed = text.lines().find_map(|line| line.strip_prefix("FAIL "));
    // There is one engine to be offered here.
    let said = failed.map(|line| line.split_once("not offered: ").map_or(line, |(_, why)| why));
    let said = said.or_else(|| text.lines().rfind(|line| !line.trim().is_empty()));
    said.map_or_else(|| "cynode-node check --engines failed".to_owned(), |said| said.trim().to_owned())
}

impl StackConfig {
    /// Returns the port of the node's probes and metrics.
    pub(super) fn node_port(&self) -> u16 {
        self.up.api_port.saturating_add(5)
    }

    pub(super) fn node_token(&self) -> PathBuf {
        self.data.join("node.token")
    }

    /// Writes the settings of the node. Returns how it is started; `None` if no node is wanted.
    pub(super) fn node_spec(&self) -> Result<Option<ProcessSpec>, Error> {
        let Some(program) = &self.node else { return Ok(None) };
        let file = self.data.join("node.toml");
        let settings = node_settings(
            &self.nats_url(),
            &self.mcp_url(),
            self.node_port(),
            &self.node_token(),
            &self.data.join("node"),
        );
        fs::write(&file, settings).map_err(|error| Error::Write(file.clone(), error))?;
        let arguments = vec![format!("--config={}", file.display())];
        Ok(Some(ProcessSpec { name: NODE.to_owned(), program: program.clone(), arguments }))
    }
}

fn node_settings(nats: &str, gateway: &str, port: u16, token: &Path, data: &Path) -> String {
    let (token, data) = (token.display().to_string(), data.display().to_string());
    format!(
        "# Settings of the local node. `cynodectl up` writes this file at each start.\n\
         [node]\nid = {NODE:?}\ndata = {data:?}\n\
         # Short, so that a stack stops soon and a killed node's jobs run again soon.\n\
         grace = {GRACE:?}\nack_wait = \"5s\"\n\n\
         [nats]\nurl = {nats:?}\n\n\
         [gateway]\nurl = {gateway:?}\ntoken_file = {token:?}\n\n\
         [admin]\nlisten = \"127.0.0.1:{port}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_short_and_without_the_log() {
        let text = "note setting  old\nFAIL engine   bwrap not offered: bwrap is not installed. Install \
                    it.\n1 check failed: engine\n";
        assert_eq!(reason(text), "bwrap is not installed. Install it.");
        assert_eq!(reason("cynode-node: node.id is wrong\n\n"), "cynode-node: node.id is wrong");
        assert_eq!(reason(""), "cynode-node check --engines failed");
    }
}
