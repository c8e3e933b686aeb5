//! One turn against a model server that misbehaves on demand, over real HTTP, with real tools on a real MCP
//! server. Each misbehaviour has one defined outcome, in the answer and in the trace.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use subjects::{Act, Completion, ErrorCode, FinishReason, Kind, Status, Step, StepOutcome, Stop, streams};
use testkit::{
    Answer, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker, WorkerBuilder, chat, eventually,
};

struct Stage {
    nats: Nats,
    model: Model,
    gateway: Gateway,
    worker: Worker,
    orchestrator: Orchestrator,
}

fn tools() -> Vec<Tool> {
    let by_id = json!({ "type": "object", "properties": { "task_id": { "type": "string" } } });
    let any = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    vec![
        Tool::new("db.task.get", "Reads one task by its id.", by_id.clone(), |arguments| {
            let id = arguments.get("task_id").and_then(Value::as_str).unwrap_or_default();
            Answer::after(Duration::from_millis(1_500), Answer::text(format!("task {id} is open")))
        }),
        Tool::new("db.task.list", "Lists tasks.", json!({ "type": "object", "properties": {} }), |_| {
            Answer::text("two tasks")
        }),
        Tool::new("db.task.create", "Creates a task.", any, |arguments| {
            Answer::task("t-1", arguments["name"].as_str().unwrap_or_default(), &[])
        }),
        Tool::new("db.task.update", "Changes a task.", by_id, |_| Answer::error("no such task")),
    ]
}

impl Stage {
    async fn set(turns: impl IntoIterator<Item = Script>) -> Self {
        Self::with(turns, |worker| worker).await
    }

    async fn with(
        turns: impl IntoIterator<Item = Script>,
        settings: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Self {
        Self::around(Model::start(turns).await, settings).await
    }

    async fn around(model: Model, settings: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Self {
        let nats = Nats::start();
        let gateway = Gateway::start(tools()).await;
        let worker = settings(Worker::manager(&nats).asking(&model).calling(&gateway)).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        Self { nats, model, gateway, worker, orchestrator }
    }

    async fn ask(&self, text: &str) -> Completion {
        let id = self.orchestrator.publish(&chat(text)).await;
        self.orchestrator.completion(Kind::Chat, id).await
    }
}

fn steps(completion: &Completion, act: Act) -> Vec<&Step> {
    completion.trace.steps.iter().filter(|step| step.act == act).collect()
}

fn content(completion: &Completion) -> &str {
    completion.message.as_ref().map_or("", |message| message.content.as_str())
}

fn code(completion: &Completion) -> Option<ErrorCode> {
    completion.error.as_ref().map(|error| error.code)
}

/// G5: tool calls arrive in fragments, results go back to the model, and the trace records
/// everything.
#[tokio::test]
async fn a_turn_calls_tools_and_answers() {
    let stage = Stage::set([
        Script::call("db__task__create", &json!({ "name": "écrire-les-notes" })),
        Script::say("Created `écrire-les-notes`."),
    ])
    .await;
    let answer = stage.ask("Create a task to write the notes").await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Completed, Stop::GoalMet), "{answer:?}");
    assert_eq!(content(&answer), "Created `écrire-les-notes`.");
    assert_eq!(answer.tasks.len(), 1, "{answer:?}");
    assert_eq!(answer.tasks[0].task_id.to_string(), "t-1");
    assert_eq!((answer.usage.model_calls, answer.usage.tool_calls), (2, 1), "two turns");
    assert_eq!((answer.usage.prompt_tokens, answer.usage.completion_tokens), (200, 20));
    assert_eq!(answer.trace.input, None, "nothing in a chat is decided by an assessment");
    assert_eq!(answer.trace.profile, Some(subjects::Role::ProjectManager));
    assert!(answer.trace.tools.contains(&"db.task.create".to_owned()), "{:?}", answer.trace.tools);
    let words = answer.trace.tool_words.get("db.task.create").expect("why it was offered");
    assert!(words.contains(&"task".to_owned()), "{words:?}");
    let indices: Vec<u32> = answer.trace.steps.iter().map(|step| step.index).collect();
    assert_eq!(indices, (0..indices.len() as u32).collect::<Vec<_>>());
    let [call] = &stage.gateway.calls()[..] else { panic!("expected one call") };
    assert_eq!(call.arguments["name"], "écrire-les-notes");
    let key = call.idempotency_key.as_deref().expect("a key");
    assert!(key.starts_with(&format!("{}/", answer.handoff_id)) && key.ends_with("/0"), "{key}");
    // G12: profile and trace.
    assert_eq!(call.profile.as_deref(), Some("default"));
    assert!(call.traceparent.as_ref().is_some_and(|it| it.contains(&answer.trace.trace_id)), "{call:?}");
    // The result was sent back to the model under the id of the call.
    let last = stage.model.turns().pop().unwrap();
    let result = last.messages().last().unwrap();
    assert_eq!((result["role"].as_str(), result["tool_call_id"].as_str()), (Some("tool"), Some("call_0")));
    drop(stage.nats);
}

#[tokio::test]
async fn calls_of_one_reply_run_concurrently() {
    let calls = ["a", "b"].map(|id| ("db__task__get".to_owned(), json!({ "task_id": id }).to_string()));
    let stage = Stage::set([Script::Call(calls.to_vec()), Script::say("both are open")]).await;
    let answer = stage.ask("How are a and b?").await;
    assert_eq!(content(&answer), "both are open");
    let calls = stage.gateway.calls();
    assert_eq!(calls.len(), 2);
    let apart = calls[1].at.duration_since(calls[0].at);
    assert!(apart < Duration::from_millis(1_500), "each takes 1.5 s, and they started {apart:?} apart");
    let last = stage.model.turns().pop().unwrap();
    let results: Vec<&str> = last
        .messages()
        .iter()
        .filter(|it| it["role"] == "tool")
        .filter_map(|it| it["content"].as_str())
        .collect();
    assert_eq!(results, ["task a is open", "task b is open"], "results are in the order of the calls");
    let keys: Vec<_> = calls.iter().filter_map(|call| call.idempotency_key.clone()).collect();
    assert_ne!(keys[0], keys[1]);
}

/// A stream that breaks off, an overloaded server and a silent one are retried; the answer is complete, and
/// the trace counts the tries.
#[tokio::test]
async fn failed_model_request_is_retried() {
    for (name, stumble) in [
        ("a stream that breaks off", Script::Cut("half of an ans".to_owned())),
        ("a server error", Script::Status(500, None)),
        ("silence in the middle", Script::HangAfter("half of".to_owned())),
        ("silence from the beginning", Script::Hang),
        (
            "an error in the stream",
            Script::Raw(vec![json!({ "error": { "message": "out of memory" } }).to_string()]),
        ),
        ("an event that is not JSON", Script::Raw(vec!["{".to_owned()])),
    ] {
        let stage = Stage::set([stumble, Script::say("whole")]).await;
        let answer = stage.ask("hello").await;
        assert_eq!((answer.status, content(&answer)), (Status::Completed, "whole"), "{name}: {answer:?}");
        let [step] = steps(&answer, Act::Model)[..] else { panic!("{name}: expected one turn: {answer:?}") };
        assert_eq!((step.tries, step.outcome), (2, StepOutcome::Ok), "{name}");
        assert_eq!(stage.orchestrator.stored(streams::DEAD).await, 0, "{name}");
    }
}

#[tokio::test]
async fn retry_after_of_the_model_server_is_honoured() {
    let stage = Stage::set([Script::Status(429, Some("2".to_owned())), Script::say("now")]).await;
    let answer = stage.ask("hello").await;
    assert_eq!(content(&answer), "now");
    let asked = stage.model.turns();
    let waited = asked[1].at.duration_since(asked[0].at);
    assert!((Duration::from_millis(1_950)..Duration::from_secs(4)).contains(&waited), "{waited:?}");
}

/// If the endpoint does not come back, the handoff is answered as failed and dead-lettered, so that it can be
/// replayed.
#[tokio::test]
async fn model_that_never_answers_fails_the_handoff() {
    for (name, script) in [("500s", Script::Status(500, None)), ("a hang", Script::Hang)] {
        let stage = Stage::set([script]).await;
        let answer = stage.ask("hello").await;
        assert_eq!(
            (answer.status, code(&answer), answer.trace.stop),
            (Status::Failed, Some(ErrorCode::InferenceUnavailable), Stop::InferenceFailure),
            "{name}"
        );
        let [step] = steps(&answer, Act::Model)[..] else { panic!("{name}: {answer:?}") };
        assert_eq!((step.tries, step.outcome), (3, StepOutcome::Failed), "{name}");
        assert_eq!(stage.orchestrator.stored(streams::DEAD).await, 1, "{name}");
        stage.orchestrator.wait_until_settled().await;
    }
}

#[tokio::test]
async fn refused_model_request_is_not_retried() {
    let stage = Stage::set([Script::Status(400, None)]).await;
    let answer = stage.ask("hello").await;
    assert_eq!(code(&answer), Some(ErrorCode::InferenceFailed));
    assert_eq!(stage.model.turns().len(), 1);
    let message = &answer.error.as_ref().unwrap().message;
    assert!(message.contains("HTTP 400") && message.contains("as scripted"), "{message}");
}

/// An invalid call is reported to the model and calls no tool; if the model repeats it, the turn ends.
#[tokio::test]
async fn invalid_calls_are_reported_to_the_model() {
    for (name, wrong, why) in [
        (
            "arguments that are no JSON",
            ("db__task__get".to_owned(), "{\"task_id\": ".to_owned()),
            "not a JSON object",
        ),
        ("arguments that are no object", ("db__task__get".to_owned(), "[1]".to_owned()), "not a JSON object"),
        ("a tool that does not exist", ("db__task__destroy".to_owned(), "{}".to_owned()), "no such tool"),
        ("a dotted name", ("db.task.get".to_owned(), "{}".to_owned()), "no such tool"),
    ] {
        let stage = Stage::set([Script::Call(vec![wrong.clone()]), Script::say("sorry, done without")]).await;
        let answer = stage.ask("hello").await;
        assert_eq!((answer.status, content(&answer)), (Status::Completed, "sorry, done without"), "{name}");
        let [step] = steps(&answer, Act::Tool)[..] else { panic!("{name}: {answer:?}") };
        assert_eq!(step.outcome, StepOutcome::Failed, "{name}");
        assert!(step.detail.as_ref().is_some_and(|detail| detail.contains(why)), "{name}: {step:?}");
        assert!(stage.gateway.calls().is_empty(), "{name}");
        let told = stage.model.turns().pop().unwrap();
        let told = told.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(told.contains(why), "{name}: {told}");

        let stage = Stage::set([Script::Call(vec![wrong])]).await;
        let answer = stage.ask("hello").await;
        assert_eq!(
            (answer.status, code(&answer), answer.trace.stop),
            (Status::Failed, Some(ErrorCode::ToolFailed), Stop::ToolFailure),
            "{name}, again and again"
        );
        assert_eq!(steps(&answer, Act::Model).len(), 3, "{name}, again and again");
    }
}

/// G5, G7: a model that only calls tools is stopped by `agent.max_steps`; the last request offers no tools.
#[tokio::test]
async fn endless_tool_loop_is_stopped_by_max_steps() {
    let calls = Script::call("db__task__list", &json!({}));
    let stage = Stage::with([calls], |worker| worker.set("agent.max_steps", "4")).await;
    let answer = stage.ask("loop").await;
    assert_eq!(
        (answer.status, code(&answer), answer.trace.stop),
        (Status::Failed, Some(ErrorCode::BudgetExceeded), Stop::MaxSteps)
    );
    assert_eq!(steps(&answer, Act::Model).len(), 4);
    assert_eq!(stage.gateway.calls().len(), 3);
    let turns = stage.model.turns();
    assert!(turns[..3].iter().all(|turn| !turn.offered().is_empty()));
    assert_eq!(turns[3].body["tool_choice"], "none", "the last request allows no tool call");
    assert!(turns[..3].iter().all(|turn| turn.body["tool_choice"].is_null()));

    // A model that answers without tools in the last step completes the handoff.
    let calls = || Script::call("db__task__list", &json!({}));
    let stage =
        Stage::with([calls(), Script::say("as far as I got")], |it| it.set("agent.max_steps", "2")).await;
    let answer = stage.ask("loop").await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Completed, Stop::MaxSteps));
}

#[tokio::test]
async fn reply_longer_than_the_limit_is_truncated() {
    let endless = "word ".repeat(10_000);
    let stage = Stage::with([Script::say(&endless)], |it| it.set("agent.max_reply_bytes", "1000")).await;
    let answer = stage.ask("tell me everything").await;
    assert_eq!(
        (answer.status, answer.finish_reason, answer.trace.stop),
        (Status::Completed, FinishReason::Length, Stop::Budget)
    );
    assert_eq!(content(&answer).len(), 1_000);

    let stage = Stage::set([Script::TooLong("as far as the server let me".to_owned())]).await;
    let answer = stage.ask("tell me everything").await;
    assert_eq!(
        (answer.status, answer.finish_reason, answer.trace.stop),
        (Status::Completed, FinishReason::Length, Stop::GoalMet)
    );
}

/// A failed tool call is not a rejection: the model receives the error and continues.
#[tokio::test]
async fn failed_call_is_reported_to_the_model() {
    let call = Script::call("db__task__update", &json!({ "task_id": "t-9" }));
    let stage = Stage::set([call, Script::say("there is no t-9")]).await;
    let answer = stage.ask("Close t-9").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "there is no t-9"));
    let [step] = steps(&answer, Act::Tool)[..] else { panic!("{answer:?}") };
    assert_eq!((step.outcome, step.detail.as_deref()), (StepOutcome::Failed, Some("no such task")));
}

#[tokio::test]
async fn server_without_streaming_is_supported() {
    let stage = Stage::set([Script::Whole("all at once".to_owned())]).await;
    let answer = stage.ask("hello").await;
    assert_eq!((content(&answer), answer.usage.completion_tokens), ("all at once", 5), "one request");
}

/// Budget: a handoff that has used up its tokens is stopped before the next model request.
#[tokio::test]
async fn token_budget_of_a_handoff_is_enforced() {
    let calls = Script::call("db__task__list", &json!({}));
    // Each model answer counts 110 tokens.
    let stage = Stage::with([calls], |worker| worker.set("agent.token_budget", "1000")).await;
    let answer = stage.ask("loop").await;
    assert_eq!(
        (code(&answer), answer.trace.stop),
        (Some(ErrorCode::BudgetExceeded), Stop::Budget),
        "{answer:?}"
    );
    assert!(answer.usage.prompt_tokens + answer.usage.completion_tokens >= 1_000);
}

/// The answer reports completed steps and usage, also when the deadline ended the handoff.
#[tokio::test]
async fn answer_after_a_deadline_reports_the_completed_steps() {
    let stage = Stage::set([Script::call("db__task__list", &json!({})), Script::Hang]).await;
    let mut question = chat("quickly");
    let soon = time::OffsetDateTime::now_utc() + Duration::from_millis(1_500);
    question.deadline = Some(subjects::Timestamp::new(soon).unwrap());
    let started = Instant::now();
    let id = stage.orchestrator.publish(&question).await;
    let answer = stage.orchestrator.completion(Kind::Chat, id).await;
    assert!(started.elapsed() < Duration::from_secs(4));
    assert_eq!(code(&answer), Some(ErrorCode::DeadlineExceeded));
    assert_eq!(steps(&answer, Act::Tool).len(), 1, "{answer:?}");
    assert_eq!(steps(&answer, Act::Model).last().unwrap().outcome, StepOutcome::Unfinished);
    assert_eq!(answer.usage.prompt_tokens, 100);
}

/// During an outage the worker stops pulling: handoffs in progress wait, queued ones stay in the queue, and
/// all are answered at their first delivery.
#[tokio::test]
async fn outage_uses_up_no_deliveries() {
    let stage = Stage::with([Script::say("back")], |worker| {
        worker
            .set("inference.tries", "2")
            .set("inference.patience", "30s")
            .set("worker.concurrency.chat", "2")
    })
    .await;
    stage.model.fail_with(Some(503));
    let mut ids = Vec::new();
    for number in 0..2 {
        ids.push(stage.orchestrator.publish(&chat(&format!("in work {number}"))).await);
    }
    eventually("/readyz to report 503", async || {
        let (status, why) = stage.worker.get("/readyz").await;
        (status == 503 && why.contains("HTTP 503")).then_some(())
    })
    .await;
    // A cancelled handoff frees its slot, and still nothing is pulled.
    let cancel = subjects::Subject::Cancel(ids.remove(0)).to_string();
    stage.orchestrator.client.publish(cancel, "".into()).await.unwrap();
    for number in 0..3 {
        ids.push(stage.orchestrator.publish(&chat(&format!("queued {number}"))).await);
    }
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    let received = stage.worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await;
    assert_eq!(received, Some(2.0));
    assert_eq!(stage.orchestrator.consumer(Kind::Chat).await.num_pending, 3);
    stage.model.fail_with(None);
    for id in ids {
        let answer = stage.orchestrator.completion(Kind::Chat, id).await;
        assert_eq!((content(&answer), answer.attempts), ("back", 1), "{answer:?}");
    }
    assert_eq!(stage.worker.get("/readyz").await.0, 200);
    assert_eq!(stage.orchestrator.stored(streams::DEAD).await, 0);
}

/// Results that do not fit into the context are truncated; the turn continues.
#[tokio::test]
async fn results_that_do_not_fit_are_truncated() {
    let nats = Nats::start();
    let gateway =
        Gateway::start(vec![Tool::new("db.task.list", "Lists tasks.", json!({ "type": "object" }), |_| {
            Answer::text("a long list ".repeat(3_000))
        })])
        .await;
    let call = || Script::call("db__task__list", &json!({}));
    let model = Model::start([call(), call(), call(), Script::say("read them all")]).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("List all tasks")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(content(&answer), "read them all", "{answer:?}");
    let last = steps(&answer, Act::Model).pop().unwrap();
    assert!(last.detail.as_ref().is_some_and(|detail| detail.contains("shortened")), "{last:?}");
    let sent = model.turns().pop().unwrap().body.to_string().len();
    assert!(sent < 16_384 * 4, "{sent} bytes");
}

/// The answer reports tokens and their price.
#[tokio::test]
async fn answer_reports_its_cost() {
    let priced = |worker: WorkerBuilder| {
        worker.set("inference.price.prompt", "2").set("inference.price.completion", "10")
    };
    let stage = Stage::with([Script::say("hello")], priced).await;
    let answer = stage.ask("hello").await;
    // One request of 100 and 10 tokens.
    let cost = answer.usage.cost_usd.expect("a price");
    assert!((cost - (100.0 * 2.0 + 10.0 * 10.0) / 1e6).abs() < 1e-12, "{cost}");

    let stage = Stage::set([Script::say("hello")]).await;
    let answer = stage.ask("hello").await;
    assert_eq!((answer.usage.model_calls, answer.usage.cost_usd), (1, None));
    assert_eq!((answer.trace.input, stage.model.asked().len()), (None, 1));
}
