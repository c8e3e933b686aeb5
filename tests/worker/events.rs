//! G14: what happens is published while it happens: plans, the selection of tools, the start and the end of
//! each call, failed tries, and connections to backends.

use std::{
    collections::BTreeMap,
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

use async_nats::Subscriber;
use futures_util::StreamExt;
use serde_json::{Value, json};
use subjects::{
    Act, Backend, BackendState, Continue, Event, Fault, Handoff, HandoffId, InstanceStatus, Kind, Pattern,
    Plan, Progress, Status, StepOutcome, Subject, Work,
};
use testkit::{
    Answer, Gateway, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker, chat, eventually,
    free_port, handoff, schedule, typical,
};
use tokio::{sync::watch, time::timeout};

const LIST: &str = "db.task.list";
const CREATE: &str = "db.task.create";
/// Occurs only in texts of user, model and tool.
const CONTENT: &str = "marmalade";
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Receives events in the order in which they were published.
struct Watcher(Subscriber);

impl Watcher {
    async fn start(orchestrator: &Orchestrator) -> Self {
        let events = orchestrator.client.subscribe(Pattern::Events.to_string()).await.unwrap();
        orchestrator.client.flush().await.unwrap();
        Self(events)
    }

    /// Returns the next events of a handoff up to one of this kind. Heartbeats are left out.
    async fn until(&mut self, id: HandoffId, last: Progress) -> Vec<Event> {
        let mut seen: Vec<Event> = Vec::new();
        while seen.last().is_none_or(|event| event.progress != last) {
            let next = timeout(MAX_WAIT, self.0.next()).await;
            let message = next.unwrap_or_else(|_| panic!("no {last:?} after {seen:?}")).unwrap();
            let text = String::from_utf8_lossy(&message.payload);
            assert!(!text.contains(CONTENT), "an event contains content: {text}");
            let event: Event = serde_json::from_slice(&message.payload).unwrap();
            if event.handoff_id == id && event.progress != Progress::Working {
                seen.push(event);
            }
        }
        seen
    }
}

fn kinds(events: &[Event]) -> Vec<Progress> {
    events.iter().map(|event| event.progress).collect()
}

fn any() -> Value {
    json!({ "type": "object" })
}

fn list_tasks() -> Tool {
    Tool::new(LIST, "Lists tasks.", any(), |_| Answer::text(format!("{CONTENT} is open")))
}

fn create_task() -> Tool {
    Tool::new(CREATE, "Creates a task.", any(), |arguments| {
        let name = arguments["name"].as_str().unwrap();
        Answer::task(&format!("id-of-{name}"), name, &[])
    })
}

fn call_list() -> Script {
    Script::call("db__task__list", &json!({ "text": CONTENT }))
}

fn plan() -> Handoff {
    let (acceptance_criteria, constraints) = (Vec::new(), Vec::new());
    handoff(Work::Plan(Plan {
        goal: format!("Publish {CONTENT}"),
        acceptance_criteria,
        constraints,
        task_id: None,
    }))
}

/// A script that waits until it is released.
fn held(then: Script) -> (watch::Sender<usize>, Script) {
    let (release, answered) = watch::channel(0);
    (release, Script::Held { turn: 0, answered, then: Box::new(then) })
}

/// The tool, which waits before each call until it is released.
fn held_tool(
    tool: &str,
    answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> (mpsc::Sender<()>, Tool) {
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let tool = Tool::new(tool, "Creates or lists tasks.", any(), move |arguments| {
        // An error means that the test has ended.
        released.lock().unwrap().recv().ok();
        answer(arguments.get("name").and_then(Value::as_str).unwrap_or_default())
    });
    (release, tool)
}

/// G14: model and tool are held, so that each event is known to be published before what follows it. The log
/// says the same.
#[tokio::test]
async fn events_of_a_chat_arrive_while_it_runs() {
    let nats = Nats::start();
    let (release_tool, tool) = held_tool(LIST, |_| Answer::text(format!("{CONTENT} is open")));
    let gateway = Gateway::start(vec![tool]).await;
    let (release_model, first) = held(call_list());
    let model = Model::start([first, Script::say(&format!("One is open: {CONTENT}."))]).await;
    let worker = Worker::manager(&nats).asking(&model).calling(&gateway).set("inference.timeout", "60s");
    let worker = worker.set("telemetry.log_level", "debug").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&chat(&format!("List the tasks about {CONTENT}"))).await;

    let seen = watcher.until(id, Progress::Thinking).await;
    assert_eq!(kinds(&seen), [Progress::Offered, Progress::Thinking], "{seen:?}");
    assert_eq!(seen[0].tools, [LIST]);
    assert_eq!((seen[1].act, seen[1].outcome), (Some(Act::Model), None));
    let turn = seen[1].step;
    assert!(turn.is_some());
    release_model.send_replace(1);

    let seen = watcher.until(id, Progress::Calling).await;
    assert_eq!(kinds(&seen), [Progress::Thought, Progress::Selected, Progress::Calling], "{seen:?}");
    assert_eq!((seen[0].step, seen[0].outcome, seen[0].tries), (turn, Some(StepOutcome::Ok), Some(1)));
    assert!(seen[0].ms.is_some());
    assert_eq!(seen[1].tools, [LIST]);
    assert_eq!((seen[2].act, seen[2].name.as_deref()), (Some(Act::Tool), Some(LIST)));
    let call = seen[2].step;
    assert_ne!(call, turn);
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none(), "the tool is held");
    release_tool.send(()).unwrap();

    let seen = watcher.until(id, Progress::Thought).await;
    assert_eq!(kinds(&seen), [Progress::Called, Progress::Thinking, Progress::Thought], "{seen:?}");
    assert_eq!((seen[0].step, seen[0].name.as_deref()), (call, Some(LIST)));
    assert_eq!((seen[0].outcome, seen[0].tries), (Some(StepOutcome::Ok), Some(1)));
    assert!(seen[0].ms.is_some());
    assert_eq!(seen[1].step, seen[2].step);
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");

    let log = worker.log();
    let logged: Vec<&str> = log.lines().filter(|line| line.contains("Progress made.")).collect();
    for kind in ["Offered", "Thinking", "Thought", "Selected", "Calling", "Called"] {
        let is_logged = logged.iter().any(|line| line.contains(kind) && line.contains(&id.to_string()));
        assert!(is_logged, "{kind} in {logged:?}");
    }
    assert!(logged.iter().all(|line| !line.contains(CONTENT)), "{logged:?}");
}

/// G14: a plan is published before the first task is created for it.
#[tokio::test]
async fn plan_is_published_before_its_tasks_are_created() {
    let nats = Nats::start();
    let (release_tool, tool) = held_tool(CREATE, |name| Answer::task(&format!("id-of-{name}"), name, &[]));
    let gateway = Gateway::start(vec![tool]).await;
    let model = Model::start([Script::say("unused")]).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&plan()).await;

    let seen = watcher.until(id, Progress::Calling).await;
    let thinks = [Progress::Thinking, Progress::Thought, Progress::Thinking, Progress::Thought];
    assert_eq!(kinds(&seen), [&thinks[..], &[Progress::Planned, Progress::Calling]].concat(), "{seen:?}");
    let names: Vec<_> = seen[..4].iter().map(|event| (event.act, event.name.as_deref())).collect();
    let (assessment, plan) = ((Some(Act::Think), Some("assessment")), (Some(Act::Think), Some("plan")));
    assert_eq!(names, [assessment, assessment, plan, plan]);
    assert_eq!(seen[4].planned, Some(2));
    assert!(orchestrator.answer(Kind::Plan, id).await.is_none(), "the first task is not created yet");
    release_tool.send(()).unwrap();
    release_tool.send(()).unwrap();

    let seen = watcher.until(id, Progress::Called).await;
    assert_eq!(kinds(&seen), [Progress::Called], "{seen:?}");
    let answer = orchestrator.completion(Kind::Plan, id).await;
    assert_eq!((answer.status, answer.tasks.len()), (Status::Completed, 2), "{answer:?}");
}

/// G14: so are a plan that needed a question, and the task of a schedule. A question is no plan.
#[tokio::test]
async fn plans_of_continued_handoffs_and_schedules_are_published() {
    let nats = Nats::start();
    let gateway = Gateway::start(vec![create_task()]).await;
    let think = |asked: &ModelRequest| {
        let mut thought = typical(asked.form().unwrap());
        if asked.form() == Some("plan") && !asked.body["messages"].to_string().contains("quayside") {
            (thought["steps"], thought["question"]) = (json!([]), json!("Which site is meant?"));
        }
        Script::Say(thought.to_string())
    };
    let model = Model::start_with_structured([Script::say("unused")], think).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let asked = orchestrator.publish(&plan()).await;
    let question = orchestrator.completion(Kind::Plan, asked).await;
    assert_eq!(question.status, Status::NeedsClarification, "{question:?}");
    let answered = Work::Continue(Continue::new(asked, "the quayside"));
    for (next, planned) in [(handoff(answered), 2), (schedule("Every Monday: check the links."), 1)] {
        let id = orchestrator.publish(&next).await;
        let seen = watcher.until(id, Progress::Planned).await;
        assert!(!kinds(&seen).contains(&Progress::Calling), "{seen:?}");
        let event = seen.last().unwrap();
        assert_eq!((event.kind, event.planned), (next.kind(), Some(planned)));
        let seen = watcher.until(id, Progress::Called).await;
        assert_eq!(kinds(&seen), [Progress::Calling, Progress::Called], "{seen:?}");
        assert_eq!(seen[1].name.as_deref(), Some(CREATE));
        orchestrator.completion(next.kind(), id).await;
    }
}

/// G14: a failed try of a model or tool call is published before the next one is made.
#[tokio::test]
async fn failed_try_is_published_before_its_retry() {
    let nats = Nats::start();
    let gateway = Gateway::start(vec![list_tasks()]).await;
    let (release_model, second) = held(call_list());
    let busy = Script::Status(503, Some("2".to_owned()));
    let model = Model::start([busy, second, Script::say("One is open.")]).await;
    let worker = Worker::manager(&nats).asking(&model).calling(&gateway).set("inference.timeout", "60s");
    let _worker = worker.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&chat("List the tasks")).await;

    let seen = watcher.until(id, Progress::TryFailed).await;
    let told_at = Instant::now();
    assert_eq!(kinds(&seen), [Progress::Offered, Progress::Thinking, Progress::TryFailed], "{seen:?}");
    let failed = &seen[2];
    assert_eq!((failed.step, failed.act, failed.tries), (seen[1].step, Some(Act::Model), Some(1)));
    assert_eq!((failed.name.as_deref(), failed.fault), (Some("local/scripted"), Some(Fault::Unavailable)));
    gateway.fail_with(Some(503));
    release_model.send_replace(1);

    let seen = watcher.until(id, Progress::TryFailed).await;
    assert!(told_at < model.turns()[1].at, "the server asked for two seconds of patience");
    let expected = [Progress::Thought, Progress::Selected, Progress::Calling, Progress::TryFailed];
    assert_eq!(kinds(&seen), expected, "{seen:?}");
    assert_eq!((seen[0].outcome, seen[0].tries), (Some(StepOutcome::Ok), Some(2)));
    let failed = &seen[3];
    assert_eq!((failed.step, failed.act, failed.tries), (seen[2].step, Some(Act::Tool), Some(1)));
    assert_eq!((failed.name.as_deref(), failed.fault), (Some(LIST), Some(Fault::Unavailable)));
    assert!(gateway.calls().is_empty(), "no try has succeeded yet");
    gateway.fail_with(None);

    let seen = watcher.until(id, Progress::Called).await;
    let called = seen.last().unwrap();
    assert_eq!(called.outcome, Some(StepOutcome::Ok));
    assert!(called.tries.is_some_and(|tries| tries > 1), "{called:?}");
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
}

/// G14: a gateway that does not list its tools delays a handoff before its first step, and that is published
/// too.
#[tokio::test]
async fn failed_list_of_tools_is_published() {
    let nats = Nats::start();
    let gateway = Gateway::start(vec![list_tasks()]).await;
    gateway.fail_with(Some(503));
    let model = Model::start([Script::say("hello")]).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&chat("hello")).await;
    let seen = watcher.until(id, Progress::TryFailed).await;
    assert_eq!((seen.len(), seen[0].name.as_deref(), seen[0].step), (1, Some("tools/list"), None));
    assert_eq!((seen[0].tries, seen[0].act), (Some(1), Some(Act::Tool)));
    assert!(seen[0].fault.is_some());
    gateway.fail_with(None);
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
}

/// G14: calls that are not made are published, without what the model wrote.
#[tokio::test]
async fn selected_calls_that_are_not_made_are_published() {
    let nats = Nats::start();
    let typed = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let list = Tool::new(LIST, "Lists tasks.", typed, |_| Answer::text("none"));
    let gateway = Gateway::start(vec![list]).await;
    let unknown = (CONTENT.to_owned(), "{}".to_owned());
    let invalid = ("db__task__list".to_owned(), json!({ "text": [CONTENT] }).to_string());
    let model = Model::start([Script::Call(vec![unknown, invalid]), Script::say("I cannot.")]).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&chat("List the tasks")).await;
    let mut seen = watcher.until(id, Progress::NotCalled).await;
    seen.extend(watcher.until(id, Progress::NotCalled).await);
    let [.., selected, first, second] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((selected.progress, &selected.tools[..]), (Progress::Selected, &[LIST.to_owned()][..]));
    assert_eq!((first.progress, first.name.as_deref()), (Progress::NotCalled, None));
    assert_eq!((second.name.as_deref(), second.outcome), (Some(LIST), Some(StepOutcome::Failed)));
    orchestrator.completion(Kind::Chat, id).await;
    assert!(gateway.calls().is_empty());
}

/// G14: a verification starts and ends for the handoff that asked for it.
#[tokio::test]
async fn verification_is_published_from_start_to_end() {
    let nats = Nats::start();
    let verify = Script::call("request_verification", &json!({ "task_id": "t-1" }));
    let model = Model::start([verify, Script::say("It is not done.")]).await;
    let manager = Worker::manager(&nats).asking(&model).set("analysts.enabled", "true");
    let _manager = manager.start().await;
    let _analyst = Worker::analyst(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut watcher = Watcher::start(&orchestrator).await;
    let id = orchestrator.publish(&chat("Is t-1 done?")).await;
    let seen = watcher.until(id, Progress::Verified).await;
    let [.., selected, started, ended] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(
        (selected.progress, &selected.tools[..]),
        (Progress::Selected, &["request_verification".to_owned()][..])
    );
    assert_eq!((started.progress, started.act), (Progress::Verifying, Some(Act::Analyst)));
    assert_eq!((started.name.as_deref(), started.step), (Some("t-1"), ended.step));
    assert_eq!(ended.outcome, Some(StepOutcome::Ok));
    orchestrator.completion(Kind::Chat, id).await;
}

/// Waits for an announcement in which the backends have these states.
async fn wait_for_backends(announced: &mut Subscriber, expected: &[(Backend, BackendState)]) {
    let expected: BTreeMap<_, _> = expected.iter().copied().collect();
    let mut seen = Vec::new();
    while seen.last() != Some(&expected) {
        let next = timeout(MAX_WAIT, announced.next()).await;
        let message = next.unwrap_or_else(|_| panic!("no {expected:?} after {seen:?}")).unwrap();
        let status: InstanceStatus = serde_json::from_slice(&message.payload).unwrap();
        seen.push(status.backends);
    }
}

async fn wait_for_log(worker: &Worker, text: &str) {
    eventually(text, async || worker.log().contains(text).then_some(())).await;
}

/// G14: connections are announced and logged when they are made, lost and restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_announced_and_logged_as_they_change() {
    use BackendState::{Connected, Lost};
    let mut nats = Nats::start();
    let mut gateway = Gateway::start(vec![list_tasks()]).await;
    let said = || Script::say("One is open.");
    let model = Model::start([call_list(), said(), call_list(), said()]).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut announced = orchestrator.client.subscribe(Subject::Presence.to_string()).await.unwrap();
    orchestrator.client.flush().await.unwrap();
    let worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let id = orchestrator.publish(&chat("List the tasks")).await;
    wait_for_backends(&mut announced, &[(Backend::Model, Connected), (Backend::Gateway, Connected)]).await;
    wait_for_log(&worker, "Backend connected.").await;
    orchestrator.completion(Kind::Chat, id).await;

    gateway.kill();
    let id = orchestrator.publish(&chat("List the tasks")).await;
    wait_for_backends(&mut announced, &[(Backend::Model, Connected), (Backend::Gateway, Lost)]).await;
    wait_for_log(&worker, "Backend connection lost; retrying.").await;
    gateway.start_again();
    wait_for_backends(&mut announced, &[(Backend::Model, Connected), (Backend::Gateway, Connected)]).await;
    wait_for_log(&worker, "Backend connection restored.").await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1), "{answer:?}");

    nats.kill();
    wait_for_log(&worker, "Connection to NATS lost; reconnecting.").await;
    nats.start_again();
    wait_for_log(&worker, "Connection to NATS restored.").await;
}

/// G14: a model server that was never there is reported with the first try, to those who watch the handoff
/// and to those who watch the instance.
#[tokio::test]
async fn unreachable_model_is_reported_with_the_first_try() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut announced = orchestrator.client.subscribe(Subject::Presence.to_string()).await.unwrap();
    let mut watcher = Watcher::start(&orchestrator).await;
    let nowhere = format!("http://127.0.0.1:{}/v1", free_port());
    let worker = Worker::manager(&nats).set("inference.base_url", nowhere).set("inference.model", "scripted");
    let worker = worker.set("inference.tries", "2").set("inference.patience", "0s").start().await;
    let id = orchestrator.publish(&chat("hello")).await;
    let seen = watcher.until(id, Progress::TryFailed).await;
    let failed = seen.last().unwrap();
    assert_eq!((failed.tries, failed.fault), (Some(1), Some(Fault::Unreachable)), "{failed:?}");
    wait_for_backends(&mut announced, &[(Backend::Model, BackendState::Lost)]).await;
    wait_for_log(&worker, "Backend not reachable; retrying.").await;
    let seen = watcher.until(id, Progress::Thought).await;
    assert_eq!(kinds(&seen), [Progress::TryFailed, Progress::Thought], "{seen:?}");
    assert_eq!((seen[1].outcome, seen[1].tries), (Some(StepOutcome::Failed), Some(2)));
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Failed, "{answer:?}");
}
