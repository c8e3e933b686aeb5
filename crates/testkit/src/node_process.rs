//! Runs `cynode-node` as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    GatewayProcess, Nats, Process, binary,
    logs::{field, lines_with},
};

const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A node process. Killed when it is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    pub process: Process,
    pub id: String,
    log: PathBuf,
    admin_address: String,
    _folder: Arc<TempDir>,
}

/// Describes a node: its folder stays the same however often it is started.
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    id: String,
    folder: Arc<TempDir>,
    nats_url: String,
    gateway_url: String,
    token_file: PathBuf,
    settings: Vec<String>,
    variables: Vec<(String, String)>,
}

impl NodeBuilder {
    /// Configures a node with a token of its own. Its jobs are taken over within seconds if it dies.
    pub async fn new(id: &str, nats: &Nats, gateway: &GatewayProcess) -> Self {
        let token_file = gateway.folder().join(format!("{id}.token"));
        fs::write(&token_file, gateway.node_token(id).await).expect("the token can be written");
        Self {
            id: id.to_owned(),
            folder: Arc::new(tempfile::tempdir().expect("a folder for the node")),
            nats_url: nats.url(),
            gateway_url: gateway.url(),
            token_file,
            settings: vec!["node.ack_wait=2s".to_owned(), "node.slots=4".to_owned()],
            variables: Vec::new(),
        }
    }

    /// Sets any setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.settings.push(format!("{key}={}", value.as_ref()));
        self
    }

    /// Calls the gateway with another token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        fs::write(&self.token_file, token).expect("the token can be written");
        self
    }

    /// Connects to NATS at another address.
    #[must_use]
    pub fn at_nats(self, url: &str) -> Self {
        Self { nats_url: url.to_owned(), ..self }
    }

    /// Calls a gateway at another address.
    #[must_use]
    pub fn at_gateway(self, url: &str) -> Self {
        Self { gateway_url: url.to_owned(), ..self }
    }

    /// Makes the process stop at a crash point, such as `Claimed#1`, and log it.
    #[must_use]
    pub fn stopping_at(mut self, point: &str) -> Self {
        self.variables.push(("CYNODE_STOP_AT".to_owned(), point.to_owned()));
        self
    }

    /// Returns the folder of the node's workspaces and state.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the process without waiting until it is ready.
    pub fn spawn(&self) -> NodeProcess {
        let mut arguments: Vec<String> =
            ["run", "--id", &self.id, "--admin-listen", "127.0.0.1:0"].map(str::to_owned).into();
        arguments.extend(["--nats-url".to_owned(), self.nats_url.clone()]);
        arguments.extend(["--gateway-url".to_owned(), self.gateway_url.clone()]);
        let token = format!("gateway.token_file={}", self.token_file.display());
        let data = format!("node.data={}", self.data().display());
        for setting in self.settings.iter().chain([&token, &data]) {
            arguments.extend(["--set".to_owned(), setting.clone()]);
        }
        let log = next_log(self.folder.path());
        let process = Process::start(&binary("cynode-node"), &arguments, &self.variables, &log);
        let folder = Arc::clone(&self.folder);
        NodeProcess { process, id: self.id.clone(), log, admin_address: String::new(), _folder: folder }
    }

    /// Starts the process and waits until it takes jobs.
    pub async fn start(&self) -> NodeProcess {
        let mut node = self.spawn();
        node.wait_until_ready().await;
        node
    }
}

impl NodeProcess {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the base URL of probes and metrics.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    /// Returns `ok`, or why the node takes no jobs.
    pub async fn readiness(&self) -> String {
        let asked = reqwest::get(format!("{}/readyz", self.admin_url())).await;
        asked.expect("the node answers").text().await.expect("the answer comes whole")
    }

    /// The text that a scraper reads.
    pub async fn metrics(&self) -> String {
        let asked = reqwest::get(format!("{}/metrics", self.admin_url())).await;
        asked.expect("the node answers").text().await.expect("the answer comes whole")
    }

    /// Waits until the process has stopped at its crash point.
    pub async fn wait_until_stopped(&self) {
        crate::eventually("the crash point is reached", || async {
            lines_with(&self.log(), "Crash point reached.")
                .any(|line| line.contains("stops=true"))
                .then_some(())
        })
        .await;
    }

    /// Waits until the node has logged a message.
    pub async fn wait_for_log(&self, message: &str) {
        crate::eventually(&format!("the node logs: {message}"), || async {
            lines_with(&self.log(), message).next().is_some().then_some(())
        })
        .await;
    }

    pub async fn wait_until_ready(&mut self) {
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let log = self.log();
            if let Some(line) = lines_with(&log, "Ready.").next() {
                self.admin_address = field(line, "admin_address").expect("an address");
                return;
            }
            assert!(self.process.is_running(), "the node ended:\n{log}");
            assert!(tokio::time::Instant::now() < until, "the node is not ready:\n{log}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A node that is started again writes another log.
fn next_log(folder: &Path) -> PathBuf {
    (1..)
        .map(|number| folder.join(format!("node-{number}.log")))
        .find(|path| !path.exists())
        .expect("a number")
}
