//! A restate-server and a service for it, for the comparison benchmark.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{Process, eventually_within, free_port, workspace};

const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The fastest settings of Restate that were found, at the same durability as our streams: a write counts
/// once the operating system has it. It survives SIGKILL of any process, and no step waits for the disk.
///
/// - `rocksdb-disable-wal-fsync`: by default Restate syncs its log to disk at every step, whereas nats-server
///   syncs every two minutes. This more than doubles Restate's rate.
/// - `default-provider = "local"`: a log for one node without a log server; a tenth faster than `replicated`.
/// - `default-num-partitions`: the default is 24. Of 1, 2, 4 and 24, one partition costs least on the two
///   shared cores: half of 24 partitions.
///
/// Disabling journal retention or metrics does not make it faster.
const SETTINGS: &str = r#"
cluster-name = "bench"
node-name = "bench"
bind-ip = "127.0.0.1"
listen-mode = "tcp"
disable-telemetry = true
log-filter = "warn"
default-num-partitions = 1

[admin]
disable-web-ui = true

[bifrost]
default-provider = "local"

[bifrost.local]
rocksdb-disable-wal-fsync = true
"#;

/// The programs for the comparison: restate-server and our service for it.
#[derive(Clone, Debug)]
pub struct RestatePrograms {
    server: PathBuf,
    peer: PathBuf,
}

impl RestatePrograms {
    /// Returns `None` unless both exist. `make bench` fetches the server and builds the service.
    pub fn find() -> Option<Self> {
        let server = workspace().join(".tools/restate/restate-server");
        let peer = workspace().join("target/restate/release/restate-peer");
        (server.is_file() && peer.is_file()).then_some(Self { server, peer })
    }
}

/// A restate-server with its own ports and store, and a service that it calls. Both are killed when it is
/// dropped.
#[derive(Debug)]
pub struct Restate {
    server: Process,
    peer: Process,
    _folder: TempDir,
    ingress: String,
    http: reqwest::Client,
}

impl Restate {
    /// Starts both and waits until calls are accepted. `arguments` are passed to the service.
    pub async fn start(programs: &RestatePrograms, arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let (ingress, admin) = (free_port(), free_port());
        let log = folder.path().join("restate.log");
        let server = spawn(&programs.server, folder.path(), ingress, admin, &log);
        let peer_log = folder.path().join("peer.log");
        let peer = Process::start(&programs.peer, arguments, &[], &peer_log);
        // Fails if another thread installed a provider first, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        let service = eventually_within(READY_TIMEOUT, "the service to listen", async || {
            let log = fs::read_to_string(&peer_log).ok()?;
            Some(format!("http://{}", log.lines().find_map(|line| line.strip_prefix("listening on "))?))
        })
        .await;
        let admin = format!("http://127.0.0.1:{admin}/deployments");
        let what = format!("restate-server to take the service; its log is\n{}", log.display());
        eventually_within(READY_TIMEOUT, &what, async || {
            let request = http.post(&admin).header("content-type", "application/json");
            let answered = request.body(json!({ "uri": service }).to_string()).send().await.ok()?;
            answered.status().is_success().then_some(())
        })
        .await;
        let ingress = format!("http://127.0.0.1:{ingress}");
        Self { server, peer, _folder: folder, ingress, http }
    }

    /// Returns the server and the service.
    pub fn processes(&self) -> [&Process; 2] {
        [&self.server, &self.peer]
    }

    /// Calls a handler, such as `Errands/errand`, and returns its result.
    pub async fn call(&self, handler: &str, input: &str) -> String {
        let request = self.http.post(format!("{}/{handler}", self.ingress));
        let request = request.header("content-type", "application/json").body(json!(input).to_string());
        let answered = request.send().await.expect("an answer");
        let status = answered.status();
        let body = answered.text().await.expect("a body");
        assert!(status.is_success(), "{handler}: {status}: {body}");
        serde_json::from_str(&body).expect("a text")
    }
}

fn spawn(program: &Path, folder: &Path, ingress: u16, admin: u16, log: &Path) -> Process {
    let config = folder.join("restate.toml");
    fs::write(&config, SETTINGS).expect("a configuration file");
    let arguments = ["--no-logo", "--config-file", &config.display().to_string()].map(str::to_owned);
    let variables = [
        ("RESTATE_BASE_DIR", folder.join("data").display().to_string()),
        ("RESTATE_BIND_PORT", free_port().to_string()),
        ("RESTATE_INGRESS__BIND_PORT", ingress.to_string()),
        ("RESTATE_ADMIN__BIND_PORT", admin.to_string()),
    ];
    Process::start(program, &arguments, &variables.map(|(name, value)| (name.to_owned(), value)), log)
}
