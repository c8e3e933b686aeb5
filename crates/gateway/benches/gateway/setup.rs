//! Starts the processes under test: a server with one tool, the gateway in front of it, and FastMCP's proxy.

use contract::lease::Issue;
use control::{LeaseIssuer, NewLease};
use policy::{Agent, AgentKind};
use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use access::tokens::{self, Holder};
use sea_orm::{DatabaseExecutor, EntityTrait, sea_query::Expr};
use serde_json::Value;
use store::{Durability, Outbox, Store, entity};
use tempfile::TempDir;
use testkit::{ConformanceUpstream, Process, binary, eventually, free_port, python_newer};

use super::load::Calls;

/// Duration of each measurement of calls per second.
pub(crate) const MEASURE_TIME: Duration = Duration::from_secs(4);
const TOOL: &str = "test_simple_text";
const SERVED: &str = "bench.test_simple_text";

/// The running processes; dropping it stops them.
#[derive(Debug)]
pub(crate) struct Setup {
    folder: TempDir,
    server: ConformanceUpstream,
    _gateway: Process,
    gateway_url: String,
    proxy: Option<(Process, String)>,
}

impl Setup {
    pub(crate) async fn start() -> Self {
        let mut setup = Self::start_with(&[]).await;
        setup.proxy = proxy(&setup.folder, setup.server.url()).await;
        setup
    }

    /// Starts a server and the gateway with these settings, without FastMCP's proxy.
    pub(crate) async fn start_with(settings: &[String]) -> Self {
        let server = ConformanceUpstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        prepare(&folder, server.url()).await;
        let log = folder.path().join("gateway.log");
        let arguments =
            ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--set", "calls.per_second=1000000"];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.extend(["--data".to_owned(), folder.path().display().to_string()]);
        arguments.extend(settings.iter().map(|setting| format!("--set={setting}")));
        let gateway = Process::start(&binary("cynode-gateway"), &arguments, &[], &log);
        let gateway_url = eventually("the gateway is ready", async || {
            let output = fs::read_to_string(&log).unwrap_or_default();
            let ready = output.lines().find(|line| line.contains("\"Ready.\""))?.to_owned();
            let ready: Value = serde_json::from_str(&ready).ok()?;
            Some(format!("http://{}/mcp", ready["address"].as_str()?))
        })
        .await;
        Self { folder, server, _gateway: gateway, gateway_url, proxy: None }
    }

    pub(crate) fn direct(&self) -> Calls {
        let url = self.server.url().to_owned();
        Calls { url, token_file: None, tool: TOOL, is_denied: false, fast_path: true, lease: None }
    }

    pub(crate) fn through(&self) -> Calls {
        Calls {
            url: self.gateway_url.clone(),
            token_file: Some(self.token()),
            tool: SERVED,
            is_denied: false,
            fast_path: true,
            lease: None,
        }
    }

    /// Returns calls under a lease.
    pub(crate) fn leased(&self) -> Calls {
        let lease = fs::read_to_string(self.folder.path().join("lease")).unwrap();
        Calls { lease: Some(lease), ..self.through() }
    }

    /// Returns calls of a tool that the agent may not see.
    pub(crate) fn denied(&self) -> Calls {
        Calls { tool: "bench.no_such_tool", is_denied: true, ..self.through() }
    }

    pub(crate) fn proxy(&self) -> Option<Calls> {
        let (_, url) = self.proxy.as_ref()?;
        Some(Calls { url: url.clone(), ..self.direct() })
    }

    fn token(&self) -> PathBuf {
        self.folder.path().join("manager.token")
    }
}

/// Creates a store with a manager's token and with the tools of the server, approved.
async fn prepare(folder: &TempDir, url: &str) {
    let store = Store::open(&store::Options {
        url: format!("sqlite://{}", folder.path().join("gateway.db").display()),
        max_connections: 4,
        patience: Duration::from_secs(5),
        durability: Durability::Process,
    })
    .await
    .unwrap();
    let lives = Duration::from_secs(3600);
    let issued =
        tokens::issue(&store, "bench", &Holder::Agent(Agent::Manager), lives, "bench").await.unwrap();
    fs::write(folder.path().join("manager.token"), issued.secret).unwrap();
    let write = store.write().await.unwrap();
    let issuer = LeaseIssuer {
        key: secrets::signing_key::read_or_create(&folder.path().join("lease.nk")).unwrap(),
        outbox: Arc::new(Outbox::new(false)),
        lifetime: lives,
        renewable_for: lives,
    };
    let lease = Issue::new(AgentKind::ProjectManager, "ada".parse().ok());
    let new = NewLease { lease, parent_id: None, issued_by: "bench".to_owned() };
    let db = DatabaseExecutor::Transaction(&write);
    let (_, lease) = issuer.issue(&db, new).await.unwrap();
    fs::write(folder.path().join("lease"), lease.lease).unwrap();
    let server = entity::upstream::Model {
        namespace: "bench".to_owned(),
        owner: None,
        transport: serde_json::json!({ "http": { "url": url } }).to_string(),
        prefix: true,
        scope: "both".to_owned(),
        enabled: true,
        call_timeout_ms: 10_000,
        concurrency: 256,
        created_at: 0,
        created_by: "bench".to_owned(),
    };
    entity::upstream::Entity::insert(entity::upstream::ActiveModel::from(server))
        .exec(&*write)
        .await
        .unwrap();
    write.commit().await.unwrap();
    let (upstreams, _looking) = registry::upstreams::Upstreams::start(
        store.clone(),
        registry::upstreams::Settings {
            connect_timeout: Duration::from_secs(5),
            refresh_every: Duration::from_secs(60),
            stdio: false,
            fast_path: true,
        },
        1 << 20,
        tokio_util::sync::CancellationToken::new(),
    );
    upstreams.refresh("bench").await.unwrap();
    upstreams.close_all().await;
    let write = store.write().await.unwrap();
    entity::upstream_tool::Entity::update_many()
        .col_expr(entity::upstream_tool::Column::Pinned, Expr::col(entity::upstream_tool::Column::Offered))
        .col_expr(
            entity::upstream_tool::Column::PinnedHash,
            Expr::col(entity::upstream_tool::Column::OfferedHash),
        )
        .col_expr(entity::upstream_tool::Column::State, Expr::value(entity::upstream_tool::APPROVED))
        .exec(&*write)
        .await
        .unwrap();
    write.commit().await.unwrap();
    store.close().await;
}

/// Starts FastMCP's proxy as its documentation describes, with a longer keep-alive: with this many callers a
/// connection is idle for longer than the default.
async fn proxy(folder: &TempDir, url: &str) -> Option<(Process, String)> {
    if !testkit::workspace().join(".tools/python-newer").is_dir() {
        return None;
    }
    let port = free_port();
    let script = folder.path().join("proxy.py");
    let text = format!(
        "from fastmcp.server.server import create_proxy\n\
         create_proxy({url:?}).run(transport='http', host='127.0.0.1', port={port}, show_banner=False,\n\
         \x20   log_level='error', uvicorn_config={{'timeout_keep_alive': 120}})\n"
    );
    fs::write(&script, text).unwrap();
    let log = folder.path().join("proxy.log");
    let process = Process::start(&python_newer(), &[script.display().to_string()], &[], &log);
    let listening = eventually("FastMCP's proxy listens", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    });
    drop(listening.await);
    Some((process, format!("http://127.0.0.1:{port}/mcp")))
}
