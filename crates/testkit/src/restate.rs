use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{Process, eventually_within, free_port, workspace};

const READY_WITHIN: Duration = Duration::from_secs(60);

/// The settings that suit Restate best here, at the durability that our streams have: what is written is with the
/// operating system before it counts, and survives SIGKILL of any process; nobody waits for the disk.
///
/// - `rocksdb-disable-wal-fsync`: by default Restate syncs its log to the disk before a step counts, as nats-server does
///   every two minutes only. This more than doubles its rate.
/// - `default-provider = "local"`: a log for one node, without the way to a log server; a tenth faster than `replicated`.
/// - `default-num-partitions`: by default 24. Of 1, 2, 4 and 24 one costs least on the two cores that all share: half of
///   what 24 cost.
///
/// Keeping no journals of what has ended, no metrics: neither makes it faster.
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

/// The programs of Restate's side, where both are there.
#[derive(Clone, Debug)]
pub struct RestatePrograms {
    server: PathBuf,
    peer: PathBuf,
}

impl RestatePrograms {
    /// `make bench` gets the one and builds the other.
    pub fn find() -> Option<Self> {
        let server = workspace().join(".tools/restate/restate-server");
        let peer = workspace().join("target/restate/release/restate-peer");
        (server.is_file() && peer.is_file()).then_some(Self { server, peer })
    }
}

/// A restate-server with ports and a store of its own, and a service that it calls. Both are gone when this goes out of
/// scope.
#[derive(Debug)]
pub struct Restate {
    server: Process,
    peer: Process,
    _folder: TempDir,
    ingress: String,
    http: reqwest::Client,
}

impl Restate {
    /// Starts both and waits until calls are taken. The arguments are for the service.
    pub async fn start(programs: &RestatePrograms, arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let (ingress, admin) = (free_port(), free_port());
        let log = folder.path().join("restate.log");
        let server = spawn(&programs.server, folder.path(), ingress, admin, &log);
        let peer_log = folder.path().join("peer.log");
        let peer = Process::start(&programs.peer, arguments, &[], &peer_log);
        // Lost against another thread is fine: then there is one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        let service = eventually_within(READY_WITHIN, "the service to listen", async || {
            let said = fs::read_to_string(&peer_log).ok()?;
            Some(format!("http://{}", said.lines().find_map(|line| line.strip_prefix("listening on "))?))
        })
        .await;
        let admin = format!("http://127.0.0.1:{admin}/deployments");
        let what = format!("restate-server to take the service; its log is\n{}", log.display());
        eventually_within(READY_WITHIN, &what, async || {
            let request = http.post(&admin).header("content-type", "application/json");
            let answered = request.body(json!({ "uri": service }).to_string()).send().await.ok()?;
            answered.status().is_success().then_some(())
        })
        .await;
        let ingress = format!("http://127.0.0.1:{ingress}");
        Self { server, peer, _folder: folder, ingress, http }
    }

    /// The server and the service.
    pub fn processes(&self) -> [&Process; 2] {
        [&self.server, &self.peer]
    }

    /// Calls a handler, as in `Errands/errand`, and waits for what it returns.
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
