//! A question that is answered an hour later, by chat.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use subjects::Timestamp;
use testkit::{ChatClient, Model, ModelRequest, OrchestratorBuilder, Script, TestClock};

use super::{
    Crew,
    drafts::{decision, material, reviewing},
    repeated,
};
use crate::stage::{Stage, effects, events, job};

const QUESTION: &str = "Which colour should the wall have?";
const MINUTE: i64 = 60 * 1_000_000;
const TICK: Duration = Duration::from_millis(20);

/// The clock of a gateway, which goes on and can be moved. Workers accept handoffs of a producer whose clock
/// is less than an hour off, so the hour lies around the time of this machine.
struct Clock {
    shown: TestClock,
    ahead: AtomicI64,
}

impl Clock {
    fn new() -> Self {
        let clock = Self { shown: TestClock::at("2026-01-01T00:00:00Z"), ahead: (-30 * MINUTE).into() };
        clock.set();
        clock
    }

    fn set(&self) {
        let now = Timestamp::now().at().unix_timestamp_nanos() / 1_000;
        self.shown.set_micros(i64::try_from(now).unwrap() + self.ahead.load(Ordering::Relaxed));
    }

    fn pass(&self, minutes: i64) {
        self.ahead.fetch_add(minutes * MINUTE, Ordering::Relaxed);
        self.set();
    }

    async fn tick(&self) {
        loop {
            self.set();
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Asks for the colour, changes the step when it is told, and lets what succeeded pass.
fn decide(asked: &ModelRequest) -> Value {
    let material = material(asked);
    let colour = ["blue", "red"].into_iter().find(|it| material.contains(&format!("answered: {it}, please")));
    match colour {
        _ if material.contains("> Outcome: succeeded") => decision("pass", &json!([])),
        Some(colour) => {
            let mut changed = decision("revise", &json!([]));
            changed["step"] = json!({
                "name": "paint", "description": format!("Paint the wall {colour}."), "kind": "job",
                "script": format!("echo {colour} >> wall.txt"), "files": [], "outputs": ["wall.txt"],
                "network": [], "seconds": null, "criteria": [], "depends_on": [], "needs_approval": false,
            });
            changed
        }
        None => {
            let mut asks = decision("escalate", &json!([]));
            asks["question"] = json!(QUESTION);
            asks
        }
    }
}

/// Passes on what a person answers, and tells the person what the tool says.
fn converse(asked: &ModelRequest) -> Script {
    let last = asked.messages().last().unwrap();
    let said = last["content"].as_str().unwrap_or_default();
    match said.strip_prefix("answer paint-wall: ") {
        _ if last["role"] == "tool" => Script::say(said),
        Some(text) => Script::call("workflow__resume", &json!({ "task_id": "paint-wall", "input": text })),
        None => Script::say("Nothing to do."),
    }
}

async fn say(client: &ChatClient, text: &str) -> String {
    let answer = client.ask(text).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.content().to_owned()
}

/// Returns how often a person's answer was taken.
fn answered(workflow: &Value) -> usize {
    let events = events(workflow);
    events.iter().filter(|[node, _, outcome, _]| node == "workflow" && outcome == "answered").count()
}

/// An hour after the question, when leases and keys of that time have ended, a person answers by chat, and
/// the task is done as the person said. Of two answers at once one is taken; a later one is told why it is
/// not.
#[tokio::test]
async fn workflow_runner_goes_on_with_an_answer_by_chat_an_hour_later() {
    let clock = Clock::new();
    tokio::select! {
        () = clock.tick() => {}
        () = answer_an_hour_later(&clock) => {}
    }
}

async fn answer_an_hour_later(clock: &Clock) {
    let stage = Stage::with(&[("leases.lifetime", "15m")], &[clock.shown.variable()]).await;
    let model = Model::start_answering(converse, reviewing(decide)).await;
    let _crew = Crew::start(&stage, &model).await;
    let orchestrator = OrchestratorBuilder::new(&stage.nats, &stage.gateway).await.start().await;
    let gateway = &stage.gateway;
    let short = json!({ "label": "short", "agent": "user", "user_id": "ada", "lives": "30min" });
    let short = orchestrator.client(&gateway.issue(short).await.1);
    let (held, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let state_of = async |lease: &str| {
        let leases = gateway.must("GET", "/api/v1/leases", None).await;
        let found = leases.as_array().unwrap().iter().find(|it| it["id"] == lease).cloned();
        found.unwrap_or_else(|| panic!("{leases}"))["state"].clone()
    };

    let task = stage.task("paint the wall", json!({ "name": "paint-wall" })).await;
    let step = job("paint", "echo which colour? >&2; exit 1", &[]);
    stage.start_workflow(&task, json!([step]), json!({})).await;
    let asked = stage.asked(&task).await;
    let question = asked["question"].as_str().unwrap();
    assert!(question.contains("“paint”") && question.contains(QUESTION), "{question}");
    assert_eq!((asked.get("holder"), stage.task_status(&task).await.as_str()), (None, "blocked"));
    stage.wait_until_settled().await;
    assert_eq!(say(&short, "Is anything left to do?").await, "Nothing to do.");
    assert_eq!(state_of(&held).await, "active");

    clock.pass(61);
    assert_eq!(short.ask("Is anything left to do?").await.status, 401, "the key has ended");
    assert_eq!(state_of(&held).await, "renewable", "a lease lasts for a quarter of an hour");
    let waiting = stage.workflow(&task).await;
    assert_eq!((&waiting["status"], &waiting["updated_at"]), (&json!("waiting"), &asked["updated_at"]));

    // Another user cannot answer it.
    let other = orchestrator.client(&gateway.api_key("eve").await.1);
    let refused = say(&other, "answer paint-wall: green, please").await;
    assert!(refused.contains("not found"), "{refused}");
    let ada = orchestrator.client(&gateway.api_key("ada").await.1);
    let answers = ["blue", "red"].map(|colour| format!("answer paint-wall: {colour}, please"));
    let (blue, red) = tokio::join!(say(&ada, &answers[0]), say(&ada, &answers[1]));
    let is_refused =
        |said: &str| said.contains("was answered already, by ") || said.contains("is done and cannot");
    assert!(is_refused(&blue) != is_refused(&red), "one is taken: {blue}\n{red}");
    let colour = if is_refused(&blue) { "red" } else { "blue" };

    let ended = stage.ended(&task).await;
    assert_eq!((&ended["status"], stage.task_status(&task).await.as_str()), (&json!("done"), "completed"));
    assert_eq!(stage.artifact(&task, "wall.txt").await, format!("{colour}\n"));
    assert_eq!(effects(&ended), repeated(&[("job", 2), ("review", 3)], "paint"));
    assert_eq!((answered(&ended), &ended["run"]), (1, &json!(2)), "{ended}");

    // The task no longer waits.
    let late = say(&ada, &answers[0]).await;
    assert!(is_refused(&late) && late.contains("done"), "{late}");
    let after = stage.workflow(&task).await;
    assert_eq!((&after["epoch"], &after["updated_at"]), (&ended["epoch"], &ended["updated_at"]));
    assert_eq!(effects(&after), effects(&ended));
}
