//! Runs `cynode-workflow`, the runner of workflows, as a process.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use tempfile::TempDir;

use crate::{
    GatewayProcess, Process,
    binaries::workflow_runner,
    logs::{field, lines_with},
};

/// Its libraries take seconds to load, more on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A runner process. Killed when it is dropped.
#[derive(Debug)]
pub struct RunnerProcess {
    pub process: Process,
    log: PathBuf,
    admin_url: String,
    _folder: Arc<TempDir>,
}

/// Describes a runner, which can be started any number of times.
#[derive(Clone, Debug)]
pub struct RunnerBuilder {
    folder: Arc<TempDir>,
    settings: Vec<String>,
}

impl RunnerBuilder {
    /// Configures a runner with a token of its own. Its workflows are taken over within seconds if it dies.
    pub async fn new(nats_url: &str, gateway: &GatewayProcess) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder for the runner"));
        let token = folder.path().join("workflow.token");
        fs::write(&token, gateway.unbound("workflow").await).expect("the token can be written");
        let settings = [
            ("nats.url", nats_url.to_owned()),
            ("gateway.url", gateway.url()),
            ("gateway.token_file", token.display().to_string()),
            ("admin.listen", "127.0.0.1:0".to_owned()),
            ("telemetry.log_format", "text".to_owned()),
            ("runner.lease", "5s".to_owned()),
        ];
        Self { folder, settings: settings.map(|(key, value)| format!("{key}={value}")).into() }
    }

    /// Sets any setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.settings.push(format!("{key}={}", value.as_ref()));
        self
    }

    /// Starts the process without waiting until it is ready.
    pub fn spawn(&self) -> RunnerProcess {
        let mut arguments: Vec<String> =
            self.settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]).collect();
        arguments.push("run".to_owned());
        let logs = (1..).map(|number| self.folder.path().join(format!("runner-{number}.log")));
        let log = logs.into_iter().find(|path| !path.exists()).expect("a number");
        let process = Process::start(&workflow_runner(), &arguments, &[], &log);
        RunnerProcess { process, log, admin_url: String::new(), _folder: Arc::clone(&self.folder) }
    }

    /// Starts the process and waits until it takes workflows.
    pub async fn start(&self) -> RunnerProcess {
        let mut runner = self.spawn();
        runner.wait_until_ready().await;
        runner
    }
}

impl RunnerProcess {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub async fn wait_until_ready(&mut self) {
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        while lines_with(&self.log(), "Runner ready.").next().is_none() {
            assert!(self.process.is_running(), "the runner ended:\n{}", self.log());
            assert!(tokio::time::Instant::now() < until, "the runner is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = self.log();
        let started = lines_with(&log, "Runner starting.").next().expect("it says so");
        self.admin_url = format!("http://127.0.0.1:{}", field(started, "admin_port").expect("a port"));
    }

    /// Waits until the runner has logged a message.
    pub async fn wait_for_log(&self, message: &str) {
        crate::eventually(&format!("the runner logs: {message}"), || async {
            lines_with(&self.log(), message).next().is_some().then_some(())
        })
        .await;
    }

    /// The text that a scraper reads.
    pub async fn metrics(&self) -> String {
        let asked = reqwest::get(format!("{}/metrics", self.admin_url)).await;
        asked.expect("the runner answers").text().await.expect("the answer comes whole")
    }
}
