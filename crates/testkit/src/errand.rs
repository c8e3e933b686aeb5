//! Errands: handoffs with three model turns and four tool calls whose turns and effects can be counted.
//!
//! The first letter of an errand's name selects a variant: `v…` requests a verification in its second turn,
//! `c…` starts with a question to the user and does the rest when it is continued.

mod quick;

pub use quick::QuickErrands;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use subjects::{Handoff, HandoffId};
use tokio::sync::watch;

use crate::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, eventually,
    typical,
};

const CREATE: &str = "db__task__create";
const ERRAND: &str = "errand";
/// The number of model turns of an errand.
const TURNS: usize = 3;
/// The number of effects of an errand.
const EFFECTS: usize = 4;

/// A model server and a gateway for any number of errands and workers.
#[derive(Debug)]
pub struct Errands {
    pub model: Model,
    pub gateway: GatewayProcess,
    token: PathBuf,
    /// For each errand, how often each of its turns was requested.
    counts: Counts,
    /// The number of turns of an errand that the model answers; later turns wait.
    answered_turns: watch::Sender<usize>,
}

type Counts = Arc<Mutex<BTreeMap<String, [usize; TURNS]>>>;

impl Errands {
    pub const TURNS: usize = TURNS;
    pub const EFFECTS: usize = EFFECTS;

    /// Starts both. `model_delay` returns the duration of each model turn.
    pub async fn start(model_delay: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        // Leases are renewed while an errand runs.
        Self::over(GatewayProcess::start_with(&[("leases.lifetime", "2s")]).await, model_delay).await
    }

    /// Like [`Self::start`], but with two gateways that share a database, so that one can be killed.
    pub async fn start_on(
        model_delay: impl Fn() -> Duration + Send + Sync + 'static,
        database: &str,
    ) -> (Self, GatewayProcess) {
        let settings = [("store.url", database), ("leases.lifetime", "5s")];
        let first = GatewayProcess::start_with(&settings).await;
        let second = GatewayProcess::start_with(&settings).await;
        (Self::over(first, model_delay).await, second)
    }

    async fn over(
        gateway: GatewayProcess,
        model_delay: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let token = gateway.folder().join("manager.token");
        fs::write(&token, gateway.manager().await).expect("the token can be written");
        let counts = Counts::default();
        let counting = Arc::clone(&counts);
        let (answered_turns, answered) = watch::channel(TURNS);
        let answer = move |asked: &ModelRequest| {
            let name = errand(asked).expect("an errand").to_owned();
            let number = turn_number(asked);
            if let Some(number) = number {
                counting.lock().expect("no panic while counting").entry(name).or_default()[number] += 1;
            }
            let turn = Script::After(model_delay(), Box::new(turn(asked)));
            Script::Held {
                turn: number.unwrap_or_default(),
                answered: answered.clone(),
                then: Box::new(turn),
            }
        };
        let structured =
            |asked: &ModelRequest| Script::Say(typical(asked.form().unwrap_or_default()).to_string());
        let model = Model::start_answering(answer, structured).await;
        Self { model, gateway, token, counts, answered_turns }
    }

    /// From now on the model answers only this many turns of each errand; later turns wait.
    pub fn hold_after(&self, turns: usize) {
        self.answered_turns.send_replace(turns);
    }

    /// The model answers all turns again, also those that wait.
    pub fn release(&self) {
        self.answered_turns.send_replace(TURNS);
    }

    /// Returns the configuration of a worker that can run errands.
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

    /// Issues the lease of a handoff that is made on behalf of a user. Returns its id and its text.
    pub async fn lease(&self, handoff: HandoffId) -> (String, String) {
        let wanted = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": handoff });
        self.gateway.lease(wanted).await
    }

    /// Publishes a handoff on behalf of a user. Returns the id of its lease.
    pub async fn publish_leased(&self, orchestrator: &Orchestrator, handoff: &Handoff) -> String {
        let (id, lease) = self.lease(handoff.id).await;
        orchestrator.publish_under(handoff, &lease).await;
        id
    }

    /// Waits until a lease is given back.
    pub async fn wait_for_revocation(&self, lease: &str) {
        eventually("the lease is given back", async || {
            let lease = self.gateway.must("GET", &format!("/api/v1/leases/{lease}"), None).await;
            (lease["state"] == "revoked").then_some(())
        })
        .await;
    }

    /// Returns the expected answer of an errand.
    pub fn answer(name: &str) -> String {
        format!("{name} is done")
    }

    /// Returns how often the model was asked for each turn of an errand.
    pub fn asked(&self, name: &str) -> [usize; TURNS] {
        self.counts.lock().expect("no panic while counting").get(name).copied().unwrap_or_default()
    }

    /// Returns the messages of the last model request of an errand, without ids and times.
    pub fn transcript(&self, name: &str) -> Vec<(String, String)> {
        let turns = self.model.turns();
        let last = turns.iter().rev().find(|asked| errand(asked) == Some(name)).expect("it was asked");
        assert_eq!(turn_number(last), Some(TURNS - 1), "the last turn");
        let normalized = |message: &Value| {
            let text = format!("{} {}", message["content"], message["tool_calls"]).replace(name, "<errand>");
            (message["role"].as_str().unwrap_or_default().to_owned(), without_ids(&text))
        };
        last.messages().iter().map(normalized).collect()
    }

    /// Returns how often each effect of any errand occurred.
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

    /// Returns the effects that an errand must have, each once.
    pub fn expected_effects(name: &str) -> Vec<String> {
        (0..EFFECTS).map(|number| effect(name, number)).collect()
    }
}

fn effect(name: &str, number: usize) -> String {
    format!("{name} effect {number}")
}

fn errand(asked: &ModelRequest) -> Option<&str> {
    let first = asked.messages().iter().find(|message| message["role"] == "user")?;
    let text = first["content"].as_str()?;
    let (_, name) = text.split_once(&format!("{ERRAND} "))?;
    name.split_whitespace().next()
}

/// Returns the number of the turn, counted from the replies of the model. `None` for the initial question to
/// the user.
fn turn_number(asked: &ModelRequest) -> Option<usize> {
    let spoken = asked.messages().iter().filter(|message| message["role"] == "assistant").count();
    spoken.checked_sub(usize::from(errand(asked)?.starts_with('c')))
}

fn turn(asked: &ModelRequest) -> Script {
    let name = errand(asked).expect("an errand");
    let create = |number| (CREATE.to_owned(), json!({ "title": effect(name, number) }).to_string());
    match turn_number(asked) {
        None => Script::call("ask_user", &json!({ "question": "In which order?" })),
        Some(0) => Script::Call(vec![create(0), create(1)]),
        Some(1) => {
            let mut calls = vec![create(2), create(3)];
            if name.starts_with('v') {
                // The gateway derives the name of a task from its title.
                let task = effect(name, 0).replace(' ', "-");
                let wanted = json!({ "task_id": task, "acceptance_criteria": ["It is done"] });
                calls.push(("request_verification".to_owned(), wanted.to_string()));
            }
            Script::Call(calls)
        }
        Some(_) => Script::Say(Errands::answer(name)),
    }
}

/// Replaces ids and times, which differ between runs.
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
