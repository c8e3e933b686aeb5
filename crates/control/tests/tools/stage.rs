//! A store, the built-in tools, and callers.

use policy::{
    Agent, AgentKind, Caller, Denial, Facts, LeaseMode, LeaseStanding, MemoryProfile, Origin, Standing,
    TokenBinding, allows,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use control::{
    AttributionSlot, Context, Does, Entry, LeaseIssuer, Memories, SandboxSettings, Sandboxes, ToolError,
    VisibleTool, VisibleTools,
};
use sea_orm::{ActiveModelTrait, DatabaseExecutor, IntoActiveModel, ModelTrait};
use serde_json::{Map, Value};
use store::{Durability, Options, Outbox, Store, clock};
use tempfile::TempDir;
use testkit::Postgres;
use tokio_util::sync::CancellationToken;

/// Runs every test on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(crate::stage::Stage::sqlite().await).await; })*
        }
        mod postgres {
            $(#[tokio::test] async fn $name() {
                super::$name(crate::stage::Stage::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// The built-in tools that the allowlist and scope of an agent kind permit.
#[derive(Debug)]
struct BuiltInTools(AgentKind);

impl VisibleTools for BuiltInTools {
    fn list(&self) -> Vec<VisibleTool> {
        let is_on = |tool: &Entry| tool.scope.includes(self.0) && allows(self.0, tool.name, &Origin::BuiltIn);
        let shown = |tool: Entry| VisibleTool {
            name: tool.name.to_owned(),
            title: tool.title.to_owned(),
            description: tool.description.to_owned(),
            input_schema: tool.input.clone(),
        };
        control::all().into_iter().filter(is_on).map(shown).collect()
    }

    fn decide(
        &self,
        standing: &Standing,
        tool: &str,
        arguments: &Map<String, Value>,
        facts: &Facts,
    ) -> Result<(), Denial> {
        let entry = control::all().into_iter().find(|entry| entry.name == tool);
        let known = entry.map(|entry| policy::Tool {
            name: entry.name.to_owned(),
            origin: Origin::BuiltIn,
            enabled: true,
            scope: entry.scope,
            quarantined: false,
            needs: entry.needs.to_vec(),
            gate: None,
            network: None,
        });
        policy::decide(standing, known.as_ref(), &[], arguments, facts).map(drop)
    }
}

/// The trace of every call.
pub(crate) const TRACE: &str = "0123456789abcdef0123456789abcdef";

pub(crate) struct Stage {
    pub(crate) store: Store,
    tools: BTreeMap<&'static str, Entry>,
    pub(crate) leases: LeaseIssuer,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) memories: Memories,
    /// What tools are told to be the time, in microseconds since 1970; 0 for the clock's.
    time: AtomicI64,
    _folder: Option<TempDir>,
    _postgres: Option<Postgres>,
}

fn caller(token: &str, agent: Agent) -> Caller {
    let lease = LeaseStanding::Absent(LeaseMode::Optional);
    Caller { token: token.to_owned(), agent, lease, profile: MemoryProfile::default() }
}

pub(crate) fn manager() -> Caller {
    caller("tok-manager", Agent::Manager)
}

pub(crate) fn orchestrator() -> Caller {
    caller("tok-orchestrator", Agent::Orchestrator)
}

pub(crate) fn analyst(user: &str, task: &str) -> Caller {
    let bound = TokenBinding { user: user.to_owned(), task: task.to_owned() };
    caller("tok-analyst", Agent::Analyst(Some(bound)))
}

impl Stage {
    /// The key with which leases are signed.
    pub(crate) fn lease_pair(&self) -> &nkeys::KeyPair {
        &self.leases.key
    }

    pub(crate) fn lease_key(&self) -> String {
        self.leases.key.public_key()
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        Self::open(url, Some(folder)).await
    }

    pub(crate) async fn postgres() -> Self {
        let postgres = Postgres::start();
        let stage = Self::open(postgres.database(), None).await;
        Self { _postgres: Some(postgres), ..stage }
    }

    pub(crate) async fn open(url: String, folder: Option<TempDir>) -> Self {
        let patience = Duration::from_secs(30);
        let options = Options { url, max_connections: 8, patience, durability: Durability::Process };
        let store = Store::open(&options).await.unwrap();
        let tools = control::all().into_iter().map(|tool| (tool.name, tool)).collect();
        let outbox = Arc::new(Outbox::new(true));
        let settings =
            SandboxSettings { max_file_mb: 2, max_files: 3, max_total_mb: 3, ..Default::default() };
        let sandboxes = Sandboxes::new(settings, outbox.clone(), None, CancellationToken::new());
        let leases = LeaseIssuer {
            key: nkeys::KeyPair::new_user(),
            outbox,
            lifetime: Duration::from_secs(900),
            renewable_for: Duration::from_secs(86_400),
        };
        let (memories, time) = (Memories::default(), AtomicI64::new(0));
        Self { store, tools, leases, sandboxes, memories, time, _folder: folder, _postgres: None }
    }

    /// Sets the time of all later calls, in RFC 3339.
    pub(crate) fn set_time(&self, text: &str) {
        let at = text.parse::<subjects::Timestamp>().unwrap().at();
        self.time.store(clock::micros(at), Ordering::Relaxed);
    }

    /// Inserts a row that only an administrator can create.
    pub(crate) async fn given<M>(&self, row: M)
    where
        M: ModelTrait + IntoActiveModel<<M::Entity as sea_orm::EntityTrait>::ActiveModel>,
        <M::Entity as sea_orm::EntityTrait>::ActiveModel: ActiveModelTrait<Entity = M::Entity> + Send,
    {
        let insert = <M::Entity as sea_orm::EntityTrait>::insert(row.into_active_model());
        insert.exec_without_returning(self.store.read()).await.unwrap();
    }

    /// Calls a tool as the gateway does: a writing tool runs in a transaction that is committed only on
    /// success. Every result is checked against the schemas that agents see.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, ToolError> {
        let tool = self.tools.get(tool).unwrap_or_else(|| panic!("no tool {tool}"));
        let result = self.run(tool, caller, arguments.as_object().unwrap().clone()).await;
        if let Ok(output) = &result {
            check(tool.name, &tool.output, output);
            check(tool.name, &tool.input, &arguments);
        }
        result
    }

    /// Runs a tool, also one that the gateway does not have.
    pub(crate) async fn run(
        &self,
        tool: &Entry,
        caller: &Caller,
        given: Map<String, Value>,
    ) -> Result<Value, ToolError> {
        let visible_tools = BuiltInTools(caller.agent.kind());
        let run = async |db: DatabaseExecutor<'_>| {
            let now = match self.time.load(Ordering::Relaxed) {
                0 => clock::now(),
                time => time,
            };
            let (visible_tools, leases, trace_id) = (&visible_tools, &self.leases, TRACE);
            let (sandboxes, memories) = (&self.sandboxes, &self.memories);
            let (call_id, attribution) = (&*uuid::Uuid::now_v7().to_string(), &AttributionSlot::default());
            let context = Context {
                db,
                caller,
                visible_tools,
                leases,
                sandboxes,
                memories,
                trace_id,
                now,
                call_id,
                attribution,
            };
            tool.run(&context, given.clone()).await
        };
        match tool.does {
            Does::Read => run(self.store.read().into()).await,
            Does::Write => {
                let write = self.store.write().await.unwrap();
                let result = run(DatabaseExecutor::Transaction(&write)).await;
                match &result {
                    Ok(_) => write.commit().await.unwrap(),
                    Err(_) => write.roll_back().await.unwrap(),
                }
                result
            }
        }
    }

    pub(crate) async fn call_as_manager(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        self.call(&manager(), tool, arguments).await
    }

    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> Value {
        let shown = arguments.to_string();
        let result = self.call(&manager(), tool, arguments).await;
        result.unwrap_or_else(|error| panic!("{tool} {shown:.300}: {error:?}"))
    }

    /// Code and message of a failure.
    pub(crate) async fn fails(&self, tool: &str, arguments: Value) -> (String, String) {
        self.fails_for(&manager(), tool, arguments).await
    }

    pub(crate) async fn fails_for(&self, caller: &Caller, tool: &str, arguments: Value) -> (String, String) {
        let shown = arguments.to_string();
        match self.call(caller, tool, arguments).await {
            Ok(output) => panic!("{tool} {shown:.300}: {output:.300}"),
            Err(ToolError::Store(error)) => panic!("{tool} {shown:.300}: {error}"),
            Err(error) => (error.code().to_owned(), error.to_string()),
        }
    }
}

fn check(tool: &str, schema: &serde_json::Map<String, Value>, value: &Value) {
    let validator = jsonschema::validator_for(&Value::Object(schema.clone())).unwrap();
    if let Err(error) = validator.validate(value) {
        panic!("{tool}: {error}: {value:.500}");
    }
}

/// Values of `name` in all items.
pub(crate) fn each<'v>(list: &'v Value, items: &str, name: &str) -> Vec<&'v str> {
    list[items].as_array().unwrap().iter().map(|item| item[name].as_str().unwrap()).collect()
}
