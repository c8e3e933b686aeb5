//! The real stack for one task: nats-server, gateway, manager and analyst.

use std::{
    fs,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use subjects::{Act, Answer, HandoffId};
use testkit::{GatewayProcess, Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, typical};

use super::cases::{After, Case, Group, Prepared};

/// Small models on busy cores are slow.
const PATIENCE: Duration = Duration::from_secs(900);

/// The user whose tasks analysts verify.
pub(crate) const ANALYSTS_USER: &str = "u-1";

/// The model that is measured.
pub(crate) enum ModelUnderTest {
    /// Makes no mistakes.
    Scripted,
    Served {
        url: String,
        name: String,
    },
}

impl ModelUnderTest {
    pub(crate) fn from_env() -> Self {
        match std::env::var("INFERENCE_URL") {
            Ok(url) => Self::Served { url, name: std::env::var("MODEL").expect("MODEL names the model") },
            Err(_) => Self::Scripted,
        }
    }

    pub(crate) fn is_scripted(&self) -> bool {
        matches!(self, Self::Scripted)
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Scripted => "scripted",
            Self::Served { name, .. } => name,
        }
    }
}

/// How a model did on one task.
pub(crate) struct Graded {
    pub(crate) id: &'static str,
    pub(crate) group: Group,
    pub(crate) for_tuning: bool,
    pub(crate) seed: u64,
    pub(crate) outcome: Result<(), String>,
    pub(crate) prompt_tokens: u64,
    /// Prompt tokens that the server had in its cache, of the turns after the first.
    pub(crate) reused: Option<(u64, u64)>,
    pub(crate) model_calls: u32,
    pub(crate) seconds: f64,
}

pub(crate) struct Stage {
    nats: Nats,
    gateway: GatewayProcess,
    token: String,
    client: mcp::Client,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
        let token = gateway.manager().await;
        let client = gateway.agent(&token);
        Self { nats, gateway, token, client }
    }

    /// Calls a tool as the manager and returns its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let called = self.gateway.call(&self.client, tool, arguments.clone()).await;
        let reply = called.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        reply.structured.unwrap_or_else(|| panic!("{tool} {arguments}: {}", reply.text))
    }

    /// Creates a task and returns its id.
    pub(crate) async fn task(&self, task: Value) -> String {
        self.call("db.task.create", task).await["task_id"].as_str().expect("an id").to_owned()
    }

    async fn tasks(&self) -> Vec<Value> {
        let listed = self.call("db.task.list", json!({ "limit": 100 })).await;
        let mut tasks = Vec::new();
        for item in listed["items"].as_array().expect("items") {
            tasks.push(self.call("db.task.get", json!({ "task_id": item["task_id"] })).await);
        }
        tasks
    }

    /// Returns the ids of the permitted calls that may have changed something. A call that failed did not.
    async fn effects(&self) -> Vec<Value> {
        let permitted = self.gateway.audit("decision=allow&limit=1000").await.into_iter();
        let changing = permitted.filter(|row| {
            let tool = row["tool"].as_str().expect("a row names its tool");
            let reads = tool.ends_with(".get") || tool.ends_with(".list") || tool.starts_with("help.");
            !reads && row["status"] != "failure"
        });
        changing.map(|row| row["id"].clone()).collect()
    }

    async fn dependencies(&self, tasks: &[Value]) -> usize {
        let mut count = 0;
        for task in tasks {
            let asked = json!({ "task_id": task["task_id"] });
            let listed = self.call("db.task.dependency.list", asked).await;
            count += listed["items"].as_array().map_or(0, Vec::len);
        }
        count
    }

    fn token_file(&self, name: &str, token: &str) -> PathBuf {
        let file = self.gateway.folder().join(name);
        fs::write(&file, token).expect("the token can be written");
        file
    }

    /// Has the model work on a task and grades the result.
    pub(crate) async fn run(
        &self,
        case: &Case,
        seed: u64,
        model: &ModelUnderTest,
        prepared: Prepared,
    ) -> Graded {
        let (before, effects) = (self.tasks().await, self.effects().await);
        let scripted = Model::start_answering(script(prepared.ideal), structured).await;
        let asking = |worker: WorkerBuilder| match model {
            ModelUnderTest::Scripted => worker.asking(&scripted),
            ModelUnderTest::Served { url, name } => worker
                .set("inference.base_url", &**url)
                .set("inference.model", &**name)
                .set("inference.timeout", "600s")
                .set("agent.think_timeout", "600s")
                .set("analysts.timeout", "600s"),
        };
        let manager = asking(Worker::manager(&self.nats))
            .set("analysts.enabled", "true")
            .set("gateway.url", self.gateway.url())
            .set("gateway.token_file", self.token_file("manager.token", &self.token).display().to_string())
            .start()
            .await;
        let mut analyst = asking(Worker::analyst(&self.nats));
        if let Some(task) = &prepared.verifies {
            let token = self.gateway.bound("project_analyst", ANALYSTS_USER, task).await;
            let file = self.token_file("analyst.token", &token).display().to_string();
            analyst = analyst.set("gateway.url", self.gateway.url()).set("gateway.token_file", file);
        }
        let _analyst = analyst.start().await;
        let orchestrator = Orchestrator::connect(&self.nats).await;
        let kind = prepared.handoff.kind();
        let started = Instant::now();
        let id = orchestrator.publish(&prepared.handoff).await;
        let answer = match orchestrator.wait_for_answer_within(PATIENCE, kind, id).await {
            Answer::Completion(answer) => answer,
            Answer::Findings(findings) => panic!("a manager answered with findings: {findings:?}"),
        };
        let seconds = started.elapsed().as_secs_f64();
        let tasks = self.tasks().await;
        let dependencies = self.dependencies(&tasks).await;
        let reused = reused_tokens(&orchestrator, id).await;
        if std::env::var_os("VERBOSE").is_some() {
            println!("{}", serde_json::to_string_pretty(&answer).expect("an answer is JSON"));
            for entry in orchestrator.journal(id).await {
                println!("{entry:?}");
            }
        }
        let usage = answer.usage;
        let thinks = answer.trace.steps.iter().filter(|step| matches!(step.act, Act::Model | Act::Think));
        let model_calls = u32::try_from(thinks.count()).unwrap_or(u32::MAX);
        let after = After {
            answer,
            is_unchanged: tasks == before && self.effects().await == effects,
            tasks,
            dependencies,
        };
        drop(manager);
        Graded {
            id: case.id,
            group: case.group,
            for_tuning: case.for_tuning,
            seed,
            outcome: (prepared.grade)(&after),
            prompt_tokens: usage.prompt_tokens,
            reused,
            model_calls,
            seconds,
        }
    }
}

/// Returns reused and all prompt tokens of the turns after the first, from the journal.
async fn reused_tokens(orchestrator: &Orchestrator, id: HandoffId) -> Option<(u64, u64)> {
    use subjects::journal::{Question, Record};
    let mut reused = (0, 0);
    for entry in orchestrator.journal(id).await {
        for record in entry.records {
            if let Record::ModelTurn(turn) = record
                && matches!(turn.question, Question::Turn(number) if number > 0)
            {
                reused.0 += turn.reply.tokens.cached;
                reused.1 += turn.reply.tokens.prompt;
            }
        }
    }
    (reused.1 > 0).then_some(reused)
}

/// Answers the turns in order and repeats the last one.
fn script(ideal: Vec<Script>) -> impl Fn(&testkit::ModelRequest) -> Script + Send + Sync + 'static {
    let next = Mutex::new(0);
    move |_| {
        let mut next = next.lock().expect("no panic while answering");
        let turn =
            ideal.get(*next).or(ideal.last()).cloned().unwrap_or_else(|| Script::say("Nothing to do."));
        *next += 1;
        turn
    }
}

/// Structured outputs of a model without fault.
fn structured(asked: &testkit::ModelRequest) -> Script {
    Script::Say(typical(asked.form().unwrap_or_default()).to_string())
}
