//! A gateway without its listeners: store, ledger, calls.

use policy::{Agent, LeaseMode, LeaseStanding, MemoryProfile};
use std::{sync::Arc, time::Duration};

use access::tokens::{self, Holder};
use audit::Ledger;
use cynode_gateway::calls::{Calls, Limits, Outcome, Request, ToolResources};
use registry::{
    catalogue::{self, CatalogueCache},
    upstreams::Upstreams,
};
use sea_orm::{EntityTrait, sea_query::Expr};
use serde_json::{Value, json};
use store::{
    Durability, Outbox, Store, clock,
    entity::{tool_setting, upstream, upstream_tool},
};
use subjects::audit::{ChainError, ChainVerifier};
use tempfile::TempDir;
use testkit::Postgres;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

/// Long enough for a hundred calls at once on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) calls: Arc<Calls>,
    pub(crate) tasks: TaskTracker,
    upstreams: Arc<Upstreams>,
    manager: String,
    _folder: Option<TempDir>,
    _postgres: Option<Postgres>,
}

impl World {
    pub(crate) async fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        Self { _folder: Some(folder), ..Self::on(&url, PATIENCE).await }
    }

    pub(crate) async fn on_postgres() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        Self { _postgres: Some(postgres), ..Self::on(&url, PATIENCE).await }
    }

    /// `patience`: how long a call waits for a connection to the store.
    pub(crate) async fn on(url: &str, patience: Duration) -> Self {
        let store = Store::open(&store::Options {
            url: url.to_owned(),
            max_connections: 8,
            patience,
            durability: Durability::Process,
        })
        .await
        .unwrap();
        let tasks = TaskTracker::new();
        let (ledger, writing) = Ledger::start(store.clone());
        tasks.spawn(writing);
        let settings = registry::upstreams::Settings {
            connect_timeout: Duration::from_secs(2),
            refresh_every: Duration::from_secs(3600),
            stdio: false,
            fast_path: true,
        };
        // No background refresh: tests decide when.
        let (upstreams, _) = Upstreams::start(store.clone(), settings, 1 << 20, CancellationToken::new());
        let limits = Limits { max_result_bytes: 1 << 20, keep_keys: Duration::from_secs(3600) };
        let catalogue = Arc::new(CatalogueCache::new(control::all()));
        let leases = Arc::new(control::LeaseIssuer {
            key: nkeys::KeyPair::new_user(),
            outbox: Arc::new(Outbox::new(false)),
            lifetime: Duration::from_secs(900),
            renewable_for: Duration::from_secs(86_400),
        });
        let (settings, stop) = (control::SandboxSettings::default(), CancellationToken::new());
        let sandboxes = control::Sandboxes::new(settings, leases.outbox.clone(), None, stop);
        let (ledger_of_calls, sandboxes) = (ledger.clone(), Arc::new(sandboxes));
        let calls = Calls::new(
            store.clone(),
            catalogue,
            ledger_of_calls,
            upstreams.clone(),
            ToolResources { leases, sandboxes, memories: Arc::default() },
            limits,
        );
        let calls = Arc::new(calls);
        let holder = Holder::Agent(Agent::Manager);
        let manager =
            tokens::issue(&store, "test", &holder, Duration::from_secs(3600), "test").await.unwrap().secret;
        Self { store, ledger, calls, tasks, upstreams, manager, _folder: None, _postgres: None }
    }

    /// Installs an upstream with all its tools approved, which has a minute for each call.
    pub(crate) async fn install(&self, namespace: &str, url: &str) {
        self.install_with_timeout(namespace, url, Duration::from_secs(60)).await;
    }

    pub(crate) async fn install_with_timeout(&self, namespace: &str, url: &str, timeout: Duration) {
        let row = upstream::Model {
            namespace: namespace.to_owned(),
            owner: None,
            transport: json!({ "http": { "url": url } }).to_string(),
            prefix: true,
            scope: "both".to_owned(),
            enabled: true,
            call_timeout_ms: timeout.as_millis().try_into().unwrap(),
            concurrency: 16,
            created_at: 0,
            created_by: "test".to_owned(),
        };
        let write = self.store.write().await.unwrap();
        upstream::Entity::insert(upstream::ActiveModel::from(row)).exec(&*write).await.unwrap();
        write.commit().await.unwrap();
        self.upstreams.refresh(namespace).await.unwrap();
        let write = self.store.write().await.unwrap();
        upstream_tool::Entity::update_many()
            .col_expr(upstream_tool::Column::Pinned, Expr::col(upstream_tool::Column::Offered))
            .col_expr(upstream_tool::Column::PinnedHash, Expr::col(upstream_tool::Column::OfferedHash))
            .col_expr(upstream_tool::Column::State, Expr::value(upstream_tool::APPROVED))
            .exec(&*write)
            .await
            .unwrap();
        catalogue::bump_revision(&write).await.unwrap();
        write.commit().await.unwrap();
    }

    pub(crate) async fn set_safe_to_repeat(&self, tool: &str) {
        let row = tool_setting::Model {
            name: tool.to_owned(),
            enabled: true,
            scope: "both".to_owned(),
            safe_to_repeat: true,
            does: None,
            updated_at: 0,
            updated_by: "test".to_owned(),
        };
        let write = self.store.write().await.unwrap();
        tool_setting::Entity::insert(tool_setting::ActiveModel::from(row)).exec(&*write).await.unwrap();
        catalogue::bump_revision(&write).await.unwrap();
        write.commit().await.unwrap();
    }

    /// A call by a manager.
    pub(crate) async fn request(&self, tool: &str, arguments: Value, key: Option<&str>) -> Request {
        let presented = tokens::look_up(&self.store, &self.manager).await.unwrap();
        let Value::Object(arguments) = arguments else { panic!("{arguments} is no object") };
        Request {
            call_id: Uuid::now_v7().to_string(),
            standing: presented.standing(
                clock::now(),
                LeaseStanding::Absent(LeaseMode::Optional),
                MemoryProfile::default(),
            ),
            revision: presented.revision,
            tool: tool.to_owned(),
            arguments,
            key: key.map(str::to_owned),
            traceparent: None,
            progress: None,
        }
    }

    /// Returns the text of the answer, or the code of the error.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        key: Option<&str>,
    ) -> Result<String, String> {
        match self.calls.call(self.request(tool, arguments, key).await).await {
            Outcome::Answered(result) if result.is_error == Some(true) => {
                Err(result.structured_content.unwrap()["code"].as_str().unwrap().to_owned())
            }
            Outcome::Answered(result) => Ok(result.content[0].as_text().unwrap().text.clone()),
            Outcome::Denied(denial) => Err(denial.error_type().to_owned()),
            Outcome::Unavailable => Err("unavailable".to_owned()),
            Outcome::InDoubt => Err("in_doubt".to_owned()),
        }
    }
}

/// Verifies the whole chain: the number of rows ever written, or the first bad one.
pub(crate) async fn verified(store: &Store) -> Result<i64, ChainError> {
    let head = audit::bounds(store.read()).await.unwrap();
    let mut chain = ChainVerifier::new(head.pruned_seq, &head.pruned_hash, Vec::new());
    for row in audit::rows_after(store, 0, 100_000).await.unwrap() {
        chain.check(&row)?;
    }
    chain.finish().map(|(seq, _)| seq)
}
