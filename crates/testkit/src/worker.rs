use std::{fs, path::PathBuf, time::Duration};

use subjects::{Role, streams::Layout};
use tempfile::TempDir;

use crate::{
    Gateway, Model, Nats, Process, binary, eventually_within,
    logs::{field, lines_with},
    workspace,
};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// `cynode-pma` as a process.
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
    pub fn manager(nats: &Nats) -> WorkerBuilder {
        WorkerBuilder::new(nats.url(), Role::ProjectManager)
    }

    /// The same for servers by their addresses.
    pub fn manager_at(url: &str) -> WorkerBuilder {
        WorkerBuilder::new(url.to_owned(), Role::ProjectManager)
    }

    pub fn analyst(nats: &Nats) -> WorkerBuilder {
        WorkerBuilder::new(nats.url(), Role::ProjectAnalyst)
    }

    /// The same for servers by their addresses.
    pub fn analyst_at(url: &str) -> WorkerBuilder {
        WorkerBuilder::new(url.to_owned(), Role::ProjectAnalyst)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("worker.log")).unwrap_or_default()
    }

    /// Where `/readyz` and its like are served, once they are.
    pub fn http(&self) -> Option<String> {
        field(lines_with(&self.log(), "Serving /healthz, /readyz and /metrics.").next()?, "address")
    }

    /// One HTTP GET: status and body.
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

    /// The value of one metric line, such as `pma_handoffs_in_flight{kind="chat"}`.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub async fn ready(&mut self) {
        let until = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            if lines_with(&self.log(), "Ready.").next().is_some() {
                return;
            }
            assert!(self.process.is_running(), "the worker ended:\n{}", self.log());
            assert!(tokio::time::Instant::now() < until, "the worker is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this many handoffs of a kind are in work here.
    pub async fn holds(&self, kind: subjects::Kind, count: usize) {
        let name = format!("pma_handoffs_in_flight{{kind=\"{kind}\"}}");
        let what = format!("{count} {kind} handoffs in flight");
        eventually_within(READY_WITHIN, &what, || async {
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

    /// Any setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.push(key, value.as_ref());
        self
    }

    /// Stops at a crash point, as in `BeforeTool#2`, and says so in its log. One that does not exist stops nowhere, and
    /// all that are passed are told.
    #[must_use]
    pub fn stopping_at(mut self, point: &str) -> Self {
        self.variables.push(("CYNODE_STOP_AT".to_owned(), point.to_owned()));
        self
    }

    /// Works with the streams of this layout.
    #[must_use]
    pub fn laid_out(self, layout: Layout) -> Self {
        self.set("nats.layout", layout.as_str())
    }

    /// A model that takes its time.
    #[must_use]
    pub fn thinking(self, time: Duration) -> Self {
        self.set("inference.offline_delay", format!("{}ms", time.as_millis()))
    }

    /// Asks this model server, without long patience.
    #[must_use]
    pub fn asking(self, model: &Model) -> Self {
        let asking = self.set("inference.base_url", model.url()).set("inference.model", "scripted");
        asking.set("inference.timeout", "2s").set("inference.tries", "3").set("inference.patience", "0s")
    }

    /// Calls the tools of this gateway.
    #[must_use]
    pub fn calling(self, gateway: &Gateway) -> Self {
        self.set("gateway.url", gateway.url())
    }

    /// Starts the process and does not wait for it.
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

    /// Starts the process and waits until it takes handoffs.
    pub async fn start(&self) -> Worker {
        let mut worker = self.spawn();
        worker.ready().await;
        worker
    }
}
