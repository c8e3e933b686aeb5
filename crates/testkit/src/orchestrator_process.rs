//! Runs `cynode-orchestrator` as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    ChatClient, GatewayProcess, Nats, Process, binary,
    logs::{field, lines_with},
};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// An orchestrator process. Killed when it is dropped.
#[derive(Debug)]
pub struct OrchestratorProcess {
    pub process: Process,
    folder: TempDir,
    address: String,
    admin_address: String,
    egress_address: Option<String>,
}

#[derive(Clone, Debug)]
pub struct OrchestratorBuilder {
    nats_url: String,
    gateway_url: String,
    token_file: PathBuf,
    listen: String,
    settings: Vec<String>,
    variables: Vec<(String, String)>,
}

impl OrchestratorBuilder {
    /// Configures an orchestrator with a token of its own.
    pub async fn new(nats: &Nats, gateway: &GatewayProcess) -> Self {
        Self::at(&nats.url(), gateway).await
    }

    /// Like [`Self::new`], with the URL of NATS.
    pub async fn at(nats_url: &str, gateway: &GatewayProcess) -> Self {
        let token_file = gateway.folder().join("orchestrator.token");
        fs::write(&token_file, gateway.unbound("orchestrator").await).expect("the token can be written");
        Self {
            nats_url: nats_url.to_owned(),
            gateway_url: gateway.url(),
            token_file,
            listen: "127.0.0.1:0".to_owned(),
            // Tests ask faster than people do.
            settings: vec!["rate_limits.requests_per_minute=1000000".to_owned()],
            variables: Vec::new(),
        }
    }

    /// Calls a gateway at another address.
    #[must_use]
    pub fn at_gateway(self, url: &str) -> Self {
        Self { gateway_url: url.to_owned(), ..self }
    }

    /// Listens for clients on this loopback port.
    #[must_use]
    pub fn on_port(self, port: u16) -> Self {
        Self { listen: format!("127.0.0.1:{port}"), ..self }
    }

    /// Sets any setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.settings.push(format!("{key}={}", value.as_ref()));
        self
    }

    /// Opens the egress to these providers, given as a TOML array.
    #[must_use]
    pub fn with_providers(self, providers: &str) -> Self {
        self.set("egress.listen", "127.0.0.1:0").set("egress.providers", providers)
    }

    /// Makes the process stop at a crash point, such as `TurnStored#1`, and log it.
    #[must_use]
    pub fn stopping_at(mut self, point: &str) -> Self {
        self.variables.push(("CYNODE_STOP_AT".to_owned(), point.to_owned()));
        self
    }

    /// Starts the process and waits until it is ready.
    pub async fn start(&self) -> OrchestratorProcess {
        let folder = tempfile::tempdir().expect("a folder for the orchestrator");
        let any = "127.0.0.1:0";
        let mut arguments: Vec<String> =
            ["run", "--listen", &self.listen, "--admin-listen", any].map(str::to_owned).into();
        arguments.extend(["--nats-url".to_owned(), self.nats_url.clone()]);
        arguments.extend(["--gateway-url".to_owned(), self.gateway_url.clone()]);
        let token = format!("gateway.token_file={}", self.token_file.display());
        for setting in self.settings.iter().chain([&token]) {
            arguments.extend(["--set".to_owned(), setting.clone()]);
        }
        let program = binary("cynode-orchestrator");
        let process = Process::start(&program, &arguments, &self.variables, &log_file(folder.path()));
        let (address, admin_address) = (String::new(), String::new());
        let mut orchestrator =
            OrchestratorProcess { process, folder, address, admin_address, egress_address: None };
        orchestrator.wait_until_ready().await;
        orchestrator
    }
}

impl OrchestratorProcess {
    /// Returns the base URL for clients of OpenAI's API, with `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the base URL of probes and metrics.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    /// Returns the base URL of the egress; the name of a provider follows it.
    pub fn egress_url(&self) -> String {
        format!("http://{}/egress", self.egress_address.as_ref().expect("the egress has providers"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(log_file(self.folder.path())).unwrap_or_default()
    }

    /// Returns a client with this API key.
    pub fn client(&self, key: &str) -> ChatClient {
        ChatClient::new(&self.url(), key)
    }

    /// The text that a scraper reads.
    pub async fn metrics(&self) -> String {
        let asked = reqwest::get(format!("{}/metrics", self.admin_url())).await;
        asked.expect("the orchestrator answers").text().await.expect("the answer comes whole")
    }

    /// Waits until chats can be handed off, which needs the streams of the workers.
    pub async fn wait_until_it_hands_off(&self) {
        crate::eventually("the orchestrator hands off", || async {
            self.metrics().await.contains("\norchestrator_ready 1").then_some(())
        })
        .await;
    }

    /// Waits until the process has stopped at its crash point.
    pub async fn wait_until_stopped(&self) {
        crate::eventually("the crash point is reached", || async {
            self.log().contains("\"stops\":true").then_some(())
        })
        .await;
    }

    async fn wait_until_ready(&mut self) {
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let log = self.log();
            if let Some(line) = lines_with(&log, "Ready.").next() {
                self.address = field(line, "address").expect("an address");
                self.admin_address = field(line, "admin_address").expect("an address");
                let egress = lines_with(&log, "Egress ready.").next();
                self.egress_address = egress.and_then(|line| field(line, "egress_address"));
                return;
            }
            assert!(self.process.is_running(), "the orchestrator ended:\n{log}");
            assert!(tokio::time::Instant::now() < until, "the orchestrator is not ready:\n{log}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl GatewayProcess {
    /// Issues an API key of a user and returns its id and secret.
    pub async fn api_key(&self, user: &str) -> (String, String) {
        self.api_key_with(user, &[]).await
    }

    /// Issues an API key with more members, such as `("is_front_end", json!(true))`.
    pub async fn api_key_with(&self, user: &str, more: &[(&str, Value)]) -> (String, String) {
        let mut new = json!({ "label": "test", "agent": "user", "user_id": user });
        for (member, value) in more {
            new[member] = value.clone();
        }
        self.issue(new).await
    }
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("orchestrator.log")
}
