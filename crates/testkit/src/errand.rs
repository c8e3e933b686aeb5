//! Handoffs of three model turns and four tool calls with effects, so that everything they cost and do can be counted.
//!
//! What an errand does besides is in its name: `v…` has a task verified in its second turn, `c…` begins with a question and
//! does the rest when it is continued.

mod quick; // the same where model and tools cost next to nothing

pub use quick::QuickErrands;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use subjects::Handoff;

use crate::{Asked, GatewayProcess, Model, Nats, Script, Worker, WorkerBuilder, chat, typical};

const CREATE: &str = "db__task__create";
const ERRAND: &str = "errand";
/// How many turns an errand takes, and how many effects it has.
const TURNS: usize = 3;
const EFFECTS: usize = 4;

/// A model and a gateway, for any number of errands under any number of workers.
#[derive(Debug)]
pub struct Errands {
    pub model: Model,
    pub gateway: GatewayProcess,
    token: PathBuf,
    /// For each errand, how often each of its turns was asked for.
    counts: Counts,
}

type Counts = Arc<Mutex<BTreeMap<String, [usize; TURNS]>>>;

impl Errands {
    pub const TURNS: usize = TURNS;
    pub const EFFECTS: usize = EFFECTS;

    /// Each turn of the model takes as long as `thinks` says.
    pub async fn start(thinks: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let (model, counts) = Self::model(thinks).await;
        Self::over(model, GatewayProcess::start().await, counts).await
    }

    /// The same over two gateways that share a database. Either can be killed; the other goes on.
    pub async fn start_on(
        thinks: impl Fn() -> Duration + Send + Sync + 'static,
        database: &str,
    ) -> (Self, GatewayProcess) {
        let settings = [("store.url", database)];
        let first = GatewayProcess::start_with(&settings).await;
        let second = GatewayProcess::start_with(&settings).await;
        let (model, counts) = Self::model(thinks).await;
        (Self::over(model, first, counts).await, second)
    }

    async fn over(model: Model, gateway: GatewayProcess, counts: Counts) -> Self {
        let token = gateway.folder().join("manager.token");
        fs::write(&token, gateway.manager().await).expect("the token can be written");
        Self { model, gateway, token, counts }
    }

    async fn model(thinks: impl Fn() -> Duration + Send + Sync + 'static) -> (Model, Counts) {
        let counts = Counts::default();
        let counting = Arc::clone(&counts);
        let answer = move |asked: &Asked| {
            let name = errand(asked).expect("an errand").to_owned();
            if let Some(turn) = turn_number(asked) {
                counting.lock().expect("no panic while counting").entry(name).or_default()[turn] += 1;
            }
            Script::After(thinks(), Box::new(turn(asked)))
        };
        let think = |asked: &Asked| Script::Say(typical(asked.form().unwrap_or_default()).to_string());
        (Model::start_answering(answer, think).await, counts)
    }

    /// A worker that can run errands.
    pub fn worker(&self, nats: &Nats) -> WorkerBuilder {
        self.worker_at(&nats.url())
    }

    pub fn worker_at(&self, url: &str) -> WorkerBuilder {
        Worker::manager_at(url)
            .asking(&self.model)
            .set("agent.assess_input", "false")
            .set("gateway.url", self.gateway.url())
            .set("gateway.token_file", self.token.display().to_string())
    }

    pub fn handoff(name: &str) -> Handoff {
        chat(&format!("Create the tasks of {ERRAND} {name}"))
    }

    /// What an errand answers.
    pub fn answer(name: &str) -> String {
        format!("{name} is done")
    }

    /// How often the model was asked for each turn of an errand.
    pub fn asked(&self, name: &str) -> [usize; TURNS] {
        self.counts.lock().expect("no panic while counting").get(name).copied().unwrap_or_default()
    }

    /// What the model saw when it was asked last, without what differs from run to run.
    pub fn transcript(&self, name: &str) -> Vec<(String, String)> {
        let turns = self.model.turns();
        let last = turns.iter().rev().find(|asked| errand(asked) == Some(name)).expect("it was asked");
        assert_eq!(turn_number(last), Some(TURNS - 1), "the last turn");
        let said = |message: &Value| {
            let text = format!("{} {}", message["content"], message["tool_calls"]).replace(name, "<errand>");
            (message["role"].as_str().unwrap_or_default().to_owned(), without_ids(&text))
        };
        last.messages().iter().map(said).collect()
    }

    /// Each effect that any errand had, and how often.
    pub async fn effects(&self) -> BTreeMap<String, usize> {
        let agent = self.gateway.agent(&fs::read_to_string(&self.token).expect("the token is there"));
        let (mut found, mut cursor) = (BTreeMap::new(), Value::Null);
        loop {
            let arguments = match &cursor {
                Value::Null => json!({ "limit": 100 }),
                cursor => json!({ "limit": 100, "cursor": cursor }),
            };
            let listed = self.gateway.call(&agent, "db.task.list", arguments).await.expect("tasks");
            let listed = listed.structured.expect("a list");
            for task in listed["items"].as_array().expect("tasks") {
                *found.entry(task["title"].as_str().expect("a title").to_owned()).or_default() += 1;
            }
            cursor = listed["next_cursor"].clone();
            if cursor.is_null() {
                return found;
            }
        }
    }

    /// What an errand does, each once.
    pub fn expected_effects(name: &str) -> Vec<String> {
        (0..EFFECTS).map(|number| effect(name, number)).collect()
    }
}

fn effect(name: &str, number: usize) -> String {
    format!("{name} effect {number}")
}

fn errand(asked: &Asked) -> Option<&str> {
    let first = asked.messages().iter().find(|message| message["role"] == "user")?;
    let text = first["content"].as_str()?;
    let (_, name) = text.split_once(&format!("{ERRAND} "))?;
    name.split_whitespace().next()
}

/// As many turns were taken as the model has spoken. `None` for the question that some begin with.
fn turn_number(asked: &Asked) -> Option<usize> {
    let spoken = asked.messages().iter().filter(|message| message["role"] == "assistant").count();
    spoken.checked_sub(usize::from(errand(asked)?.starts_with('c')))
}

fn turn(asked: &Asked) -> Script {
    let name = errand(asked).expect("an errand");
    let create = |number| (CREATE.to_owned(), json!({ "title": effect(name, number) }).to_string());
    match turn_number(asked) {
        None => Script::call("ask_user", &json!({ "question": "In which order?" })),
        Some(0) => Script::Call(vec![create(0), create(1)]),
        Some(1) => {
            let mut calls = vec![create(2), create(3)];
            if name.starts_with('v') {
                let wanted = json!({ "task_id": name, "acceptance_criteria": ["It is done"] });
                calls.push(("request_verification".to_owned(), wanted.to_string()));
            }
            Script::Call(calls)
        }
        Some(_) => Script::Say(Errands::answer(name)),
    }
}

/// Ids and times differ from run to run; everything else is the same.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() >= 19 && word.chars().filter(char::is_ascii_digit).count() >= 8;
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "-:._".contains(c))) {
        let body = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || "-:._".contains(c)));
        if is_id(body) {
            out.push_str("<id>");
            out.push_str(&word[body.len()..]);
        } else {
            out.push_str(word);
        }
    }
    out
}
