//! Runs `cynode-pma` as a process.

use std::{fs, path::PathBuf, time::Duration};

use subjects::{Role, streams::Layout};
use tempfile::TempDir;

use crate::{
    Gateway, GatewayProcess, Model, Nats, Process, binary, eventually_within,
    logs::{field, lines_with},
    workspace,
};

const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A worker process. Killed when it is dropped.
#[derive(Debug)]
pub struct Worker {
    pub process: Process,
    folder: TempDir,
}

#[derive(Clone, Debug)]
pub struct WorkerBuilder {
    url: String,
    role: Role,
    settings: Vec<String>,
    variables: Vec<(String, String)>,
    program: PathBuf,
}

impl Worker {
    /// Configures a project manager.
    pub fn manager(nats: &Nats) -> WorkerBuilder {
        WorkerBuilder::new(nats.url(), Role::ProjectManager)
    }

    /// Configures a project manager for servers by URL.
    pub fn manager_at(url: &str) -> WorkerBuilder {
        WorkerBuilder::new(url.to_owned(), Role::ProjectManager)
    }

    /// Configures a project analyst.
    pub fn analyst(nats: &Nats) -> WorkerBuilder {
        WorkerBuilder::new(nats.url(), Role::ProjectAnalyst)
    }

    /// Configures a project analyst for servers by URL.
    pub fn analyst_at(url: &str) -> WorkerBuilder {
        WorkerBuilder::new(url.to_owned(), Role::ProjectAnalyst)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("worker.log")).unwrap_or_default()
    }

    /// Returns the address at which `/readyz` and the like are served, once they are.
    pub fn http(&self) -> Option<String> {
        field(lines_with(&self.log(), "Serving /healthz, /readyz and /metrics.").next()?, "address")
    }

    /// Sends one HTTP GET and returns the status and body.
    pub async fn get(&self, path: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let address = self.http().expect("the worker serves HTTP");
        let mut stream = tokio::net::TcpStream::connect(&address).await.expect("the worker listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("answered");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    /// Returns the value of a metric, such as `pma_handoffs_in_flight{kind="chat"}`.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub async fn wait_until_ready(&mut self) {
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            if lines_with(&self.log(), "Ready.").next().is_some() {
                return;
            }
            assert!(self.process.is_running(), "the worker ended:\n{}", self.log());
            assert!(tokio::time::Instant::now() < until, "the worker is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until exactly this many handoffs of a kind are in flight on this worker.
    pub async fn wait_for_in_flight(&self, kind: subjects::Kind, count: usize) {
        let name = format!("pma_handoffs_in_flight{{kind=\"{kind}\"}}");
        let what = format!("{count} {kind} handoffs in flight");
        eventually_within(READY_TIMEOUT, &what, || async {
            let running = self.metric(&name).await.unwrap_or(0.0);
            (running == count as f64).then_some(())
        })
        .await;
    }
}

impl WorkerBuilder {
    fn new(url: String, role: Role) -> Self {
        let mut builder =
            Self { url, role, settings: Vec::new(), variables: Vec::new(), program: binary("cynode-pma") };
        builder.push("telemetry.log_format", "json");
        builder
    }

    fn push(&mut self, key: &str, value: &str) {
        self.settings.push(format!("{key}={value}"));
    }

    /// Sets any setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.push(key, value.as_ref());
        self
    }

    /// Makes the worker stop at a crash point, such as `BeforeTool#2`, and log it. With a point that does not
    /// exist, the worker does not stop, and logs every point that it passes.
    #[must_use]
    pub fn stopping_at(mut self, point: &str) -> Self {
        self.variables.push(("CYNODE_STOP_AT".to_owned(), point.to_owned()));
        self
    }

    /// Uses the streams of this layout.
    #[must_use]
    pub fn laid_out(self, layout: Layout) -> Self {
        self.set("nats.layout", layout.as_str())
    }

    /// Uses the offline model with this delay.
    #[must_use]
    pub fn thinking(self, time: Duration) -> Self {
        self.set("inference.offline_delay", format!("{}ms", time.as_millis()))
    }

    /// Uses this model server, with short timeouts and no patience during an outage.
    #[must_use]
    pub fn asking(self, model: &Model) -> Self {
        let asking = self.set("inference.base_url", model.url()).set("inference.model", "scripted");
        asking.set("inference.timeout", "2s").set("inference.tries", "3").set("inference.patience", "0s")
    }

    /// Uses this gateway.
    #[must_use]
    pub fn calling(self, gateway: &Gateway) -> Self {
        self.set("gateway.url", gateway.url())
    }

    /// Uses this gateway process, with a token for the role that is bound to nothing.
    pub async fn calling_process(self, gateway: &GatewayProcess) -> Self {
        let file = gateway.folder().join(format!("{}.token", self.role));
        fs::write(&file, gateway.unbound(&self.role.to_string()).await).expect("the token can be written");
        self.set("gateway.url", gateway.url()).set("gateway.token_file", file.display().to_string())
    }

    /// Starts the process without waiting until it is ready.
    pub fn spawn(&self) -> Worker {
        let folder = tempfile::tempdir().expect("a folder for the worker");
        let root = workspace().join("instructions").display().to_string();
        let mut arguments = vec![
            "run".to_owned(),
            format!("--role={}", self.role),
            format!("--nats-url={}", self.url),
            format!("--instructions-root={root}"),
        ];
        for setting in &self.settings {
            arguments.push("--set".to_owned());
            arguments.push(setting.clone());
        }
        let process =
            Process::start(&self.program, &arguments, &self.variables, &folder.path().join("worker.log"));
        Worker { process, folder }
    }

    /// Starts the process and waits until it is ready.
    pub async fn start(&self) -> Worker {
        let mut worker = self.spawn();
        worker.wait_until_ready().await;
        worker
    }
}
