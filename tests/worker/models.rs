//! Models as people have them: small ones, servers that refuse a schema, short contexts, calls written as
//! text, and answers that claim what no call did. The gateway is the real one.

mod contexts;
mod replies;

use std::sync::Mutex;

use serde_json::{Value, json};
use subjects::{Act, Completion, Kind, Status};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, typical,
};

struct Stage {
    model: Model,
    gateway: GatewayProcess,
    client: mcp::Client,
    worker: Worker,
    orchestrator: Orchestrator,
    _nats: Nats,
}

impl Stage {
    async fn around(model: Model, settings: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Self {
        let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
        let token = gateway.manager().await;
        let file = gateway.folder().join("manager.token");
        std::fs::write(&file, &token).unwrap();
        let worker = Worker::manager(&nats)
            .asking(&model)
            .set("gateway.url", gateway.url())
            .set("gateway.token_file", file.display().to_string());
        let worker = settings(worker).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let client = gateway.agent(&token);
        Self { model, gateway, client, worker, orchestrator, _nats: nats }
    }

    async fn native(turns: impl IntoIterator<Item = Script>) -> Self {
        Self::around(Model::start(turns).await, |worker| worker).await
    }

    /// A model that is asked for typed steps.
    async fn typed(steps: impl IntoIterator<Item = Value>) -> Self {
        let model = Model::start_answering(|_| Script::say("not asked for"), say_in_order(steps)).await;
        Self::around(model, |worker| worker.set("inference.tool_mode", "typed")).await
    }

    async fn ask(&self, text: &str) -> Completion {
        let id = self.orchestrator.publish(&chat(text)).await;
        self.orchestrator.completion(Kind::Chat, id).await
    }

    async fn names_of_tasks(&self) -> Vec<String> {
        let listed = self.gateway.call(&self.client, "db.task.list", json!({})).await.unwrap();
        let items = listed.structured.unwrap()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn say_in_order(
    steps: impl IntoIterator<Item = Value>,
) -> impl Fn(&ModelRequest) -> Script + Send + Sync + 'static {
    let steps: Mutex<Vec<Value>> = Mutex::new(steps.into_iter().collect());
    move |_| {
        let mut steps = steps.lock().unwrap();
        let next = if steps.len() > 1 { steps.remove(0) } else { steps[0].clone() };
        Script::Say(next.to_string())
    }
}

fn content(answer: &Completion) -> &str {
    answer.message.as_ref().map_or("", |message| message.content.as_str())
}

fn create(name: &str) -> Value {
    json!({ "tool": "db__task__create", "arguments": { "name": name } })
}

fn details(answer: &Completion) -> String {
    let details = answer.trace.steps.iter().filter_map(|step| step.detail.as_deref());
    details.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn typed_steps_call_tools_and_answer() {
    let stage = Stage::typed([create("water-plants"), json!({ "answer": "`water-plants` is there." })]).await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "`water-plants` is there."));
    assert_eq!(stage.names_of_tasks().await, ["water-plants"]);
    let asked = stage.model.asked();
    assert_eq!((asked.len(), asked[0].form()), (2, Some("step")));
    assert_eq!(asked[0].body.get("tools"), None, "the tools are in the prompt");
    assert!(asked[0].system().contains("- db__task__create {"), "{}", asked[0].system());
    // What was sent before is sent again unchanged, so that the server's cache has it.
    let [first, second] = [&asked[0], &asked[1]].map(|asked| asked.messages());
    assert_eq!(first, &second[..first.len()]);
    let written = r#"{"tool": "db__task__create", "arguments": {"name":"water-plants"}}"#;
    assert_eq!(second[first.len()]["content"], written);
    assert!(second.last().unwrap()["content"].as_str().unwrap().starts_with("Result of db__task__create:"));
    let limits = &asked[0].body;
    assert_eq!((&limits["temperature"], limits["max_tokens"].is_u64()), (&json!(0.0), true), "{limits}");
}

#[tokio::test]
async fn step_may_speak_of_the_marks_of_thoughts() {
    let create = json!({ "name": "clean-up", "description": "Remove </think> from answers." });
    let step = json!({ "tool": "db__task__create", "arguments": create });
    let stage = Stage::typed([step, json!({ "answer": "`clean-up` is there." })]).await;
    let answer = stage.ask("Create a task clean-up: remove </think> from answers").await;
    assert_eq!(content(&answer), "`clean-up` is there.");
    assert_eq!(stage.names_of_tasks().await, ["clean-up"]);
}

#[tokio::test]
async fn typed_question_is_asked() {
    let stage = Stage::typed([json!({ "ask": "Which project?" })]).await;
    let answer = stage.ask("Create a task").await;
    assert_eq!((answer.status, content(&answer)), (Status::NeedsClarification, "Which project?"));
}

#[tokio::test]
async fn invalid_step_is_asked_for_again() {
    let stage = Stage::typed([json!({ "plan": "first I" }), json!({ "answer": "Nothing to do." })]).await;
    let answer = stage.ask("Hello").await;
    assert_eq!(content(&answer), "Nothing to do.");
    assert!(details(&answer).contains("not a step"), "{:?}", answer.trace.steps);
    assert_eq!(answer.usage.prompt_tokens, 200, "both replies are paid for");
}

/// A server that ignores schemas costs a second try, not the answer.
#[tokio::test]
async fn text_instead_of_a_step_is_the_answer_in_the_end() {
    let model = Model::start_answering(|_| Script::Hang, |_| Script::say("Hello there.")).await;
    let stage = Stage::around(model, |worker| worker.set("inference.tool_mode", "typed")).await;
    let answer = stage.ask("Hello").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Hello there."));
    assert!(details(&answer).contains("not a step"), "{:?}", answer.trace.steps);
}

/// A model can only choose ids that it has seen.
#[tokio::test]
async fn typed_steps_offer_only_known_ids() {
    let list = json!({ "tool": "db__task__list", "arguments": {} });
    let stage = Stage::typed([create("a-b"), list, json!({ "answer": "One." })]).await;
    stage.ask("Create a-b, then list and update the tasks").await;
    let asked = stage.model.asked();
    let schema_of = |asked: &ModelRequest, tool: &str| {
        let branches = asked.body.pointer("/response_format/json_schema/schema/anyOf").unwrap();
        let of_tool = |branch: &&Value| branch.pointer("/properties/tool/enum/0") == Some(&json!(tool));
        let branch = branches.as_array().unwrap().iter().find(of_tool).expect(tool);
        branch.pointer("/properties/arguments/properties").unwrap().clone()
    };
    let before = schema_of(&asked[0], "db__task__create");
    assert_eq!(before.get("project_id"), None, "no project is known: {before}");
    let after = schema_of(&asked[2], "db__task__create");
    assert_eq!(after["parent_task_id"]["enum"].as_array().unwrap().len(), 1, "{after}");
}

#[tokio::test]
async fn small_model_gets_typed_steps_by_itself() {
    let model = Model::start_answering(
        |_| Script::say("native"),
        |asked| match asked.form() {
            Some("step") => Script::Say(json!({ "answer": "typed" }).to_string()),
            form => Script::Say(typical(form.unwrap_or_default()).to_string()),
        },
    )
    .await;
    model.describe_as(json!({ "id": "scripted", "meta": { "n_params": 1_500_000_000_u64 } }));
    let stage = Stage::around(model, |worker| worker).await;
    assert_eq!(content(&stage.ask("Hello").await), "typed");
    let stage = Stage::native([Script::say("native")]).await;
    assert_eq!(content(&stage.ask("Hello").await), "native");
}

#[tokio::test]
async fn call_written_as_text_is_asked_for_again_in_form() {
    let text = "```json\n{\"name\": \"db__task__create\", \"arguments\": {\"name\": \"water-plants\"}}\n```";
    let steps = say_in_order([create("water-plants"), json!({ "answer": "It is there." })]);
    let model = Model::start_answering(move |_| Script::say(text), steps).await;
    let stage = Stage::around(model, |worker| worker).await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "It is there."));
    assert_eq!(stage.names_of_tasks().await, ["water-plants"]);
    assert!(details(&answer).contains("db__task__create was called in text"), "{:?}", answer.trace.steps);
    // The model is asked for typed steps from then on.
    let native = stage.model.turns().len();
    stage.ask("Hello").await;
    assert_eq!((native, stage.model.turns().len()), (1, 1));
}

/// A server that refuses the schema of one tool costs that tool, not the turn.
#[tokio::test]
async fn refused_schema_costs_one_tool() {
    let refuse = |asked: &ModelRequest| {
        if asked.offered().contains(&"db__task__list") {
            return Script::Refuse(400, "JSON schema conversion failed: Unrecognized schema".to_owned());
        }
        Script::say("Nothing is open.")
    };
    let stage = Stage::around(Model::start_answering(refuse, refuse).await, |worker| worker).await;
    let answer = stage.ask("List the tasks").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Nothing is open."), "{answer:?}");
    assert!(details(&answer).contains("db__task__list"), "{:?}", answer.trace.steps);
    let asked = stage.model.asked().len();
    stage.ask("List the tasks").await;
    assert_eq!(stage.model.asked().len(), asked + 1, "the server is not asked about its tools again");
    assert_eq!(stage.worker.metric("pma_tools_refused_total{tool=\"db__task__list\"}").await, Some(1.0));
}

#[tokio::test]
async fn arguments_are_validated_against_the_tools_own_schema() {
    let wrong = json!({ "status": "open" });
    let calls = [Script::call("db__task__list", &wrong), Script::say("I could not list them.")];
    let stage = Stage::native(calls).await;
    let answer = stage.ask("List the tasks").await;
    assert_eq!(answer.status, Status::Completed);
    let last = stage.model.turns().pop().unwrap();
    let told = last.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("invalid arguments") && told.contains("/status"), "{told}");
    assert_eq!(stage.gateway.audit("tool=db.task.list").await.len(), 0, "it was not called");
}

/// An answer that claims a change which no call made is asked for again, with what really happened.
#[tokio::test]
async fn claim_without_a_call_is_not_an_answer() {
    let stage = Stage::native([
        Script::say("I created the task `water-plants`."),
        Script::call("db__task__create", &json!({ "name": "water-plants" })),
        Script::say("I created the task `water-plants`."),
    ])
    .await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!(content(&answer), "I created the task `water-plants`.");
    assert_eq!(stage.names_of_tasks().await, ["water-plants"]);
    assert!(details(&answer).contains("asked again: no tool call created anything"), "{answer:?}");
    let second = &stage.model.turns()[1];
    let told = second.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("nothing was changed"), "{told}");

    let stubborn = Stage::native([Script::say("Done! The task has been created.")]).await;
    let answer = stubborn.ask("Create a task called water-plants").await;
    assert_eq!(answer.status, Status::Completed);
    assert_eq!(content(&answer), "Done! The task has been created.\n\n(In this turn nothing was changed.)");
    assert_eq!(stubborn.model.asked().len(), 2, "it is asked again once");
}

#[tokio::test]
async fn request_that_cannot_fit_says_which_limit_to_change() {
    let why = "the request exceeds the available context size (512 tokens), try increasing it";
    let stage = Stage::native([Script::Refuse(400, why.to_owned())]).await;
    let answer = stage.ask("Hello").await;
    assert_eq!(answer.status, Status::Failed);
    let message = &answer.error.as_ref().unwrap().message;
    assert!(message.contains("agent.context_tokens") || message.contains("context"), "{message}");
    let asked = answer.trace.steps.iter().filter(|step| step.act == Act::Model);
    assert!(
        asked.clone().all(|step| step.outcome == subjects::StepOutcome::Failed),
        "{:?}",
        answer.trace.steps
    );
}

/// A claim inside a question reaches no user without what was really done.
#[tokio::test]
async fn question_that_claims_a_change_says_what_was_done() {
    let question = json!({ "question": "I created the task `zeta-1`. Should I also start it?" });
    let stage = Stage::native([Script::call("ask_user", &question)]).await;
    let answer = stage.ask("Create a task called zeta-1").await;
    assert_eq!(answer.status, Status::NeedsClarification);
    assert!(content(&answer).ends_with("(In this turn nothing was changed.)"), "{}", content(&answer));
}

/// An example of a call is an answer, not a call.
#[tokio::test]
async fn quoted_call_is_not_executed() {
    let example = "You would write {\"name\": \"db.task.create\", \"arguments\": {}}. I did nothing.";
    let stage = Stage::native([Script::say(example)]).await;
    assert_eq!(content(&stage.ask("Show me a call, do not make it").await), example);
    assert_eq!(stage.model.asked().len(), 1);
}

/// A server that refuses schemas of every kind is asked for typed steps in words.
#[tokio::test]
async fn server_without_tools_and_schemas_is_asked_in_words() {
    let refuse = |asked: &ModelRequest| {
        if asked.body.get("tools").is_some() || asked.body.get("response_format").is_some() {
            return Script::Refuse(400, "this server supports no tools and no schemas".to_owned());
        }
        match asked.messages().iter().any(|message| message.to_string().contains("Result of")) {
            false => Script::Say(create("water-plants").to_string()),
            true => Script::Say(json!({ "answer": "`water-plants` is there." }).to_string()),
        }
    };
    let stage = Stage::around(Model::start_answering(refuse, refuse).await, |worker| worker).await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!(content(&answer), "`water-plants` is there.", "{answer:?}");
    assert_eq!(stage.names_of_tasks().await, ["water-plants"]);
}

/// A field that a server refuses is left out; a schema that breaks it with status 500 costs the tool.
#[tokio::test]
async fn refused_field_and_broken_grammar_do_not_fail_the_turn() {
    let refuse = |asked: &ModelRequest| {
        if asked.body.get("stream_options").is_some() {
            return Script::Refuse(422, "stream_options: Extra inputs are not permitted".to_owned());
        }
        if asked.offered().contains(&"db__task__list") {
            return Script::Refuse(500, "Failed to parse grammar: JSON schema conversion failed".to_owned());
        }
        Script::say("Nothing is open.")
    };
    let stage = Stage::around(Model::start_answering(refuse, refuse).await, |worker| worker).await;
    let answer = stage.ask("List the tasks").await;
    assert_eq!(content(&answer), "Nothing is open.", "{answer:?}");
    let told = details(&answer);
    assert!(told.contains("`stream_options`") && told.contains("db__task__list"), "{told}");
}

/// A call in text on a server that refuses typed steps is asked for again natively.
#[tokio::test]
async fn text_call_is_recovered_without_typed_steps() {
    let text = r#"{"name": "db__task__create", "arguments": {"name": "water-plants"}}"#;
    let turns = [
        Script::say(text),
        Script::call("db__task__create", &json!({ "name": "water-plants" })),
        Script::say("`water-plants` is there."),
    ];
    let turns = Mutex::new(turns.into_iter().collect::<std::collections::VecDeque<_>>());
    let answer = move |_: &ModelRequest| turns.lock().unwrap().pop_front().unwrap_or(Script::Hang);
    let refuse = |_: &ModelRequest| Script::Refuse(400, "response_format is not supported".to_owned());
    let stage = Stage::around(Model::start_answering(answer, refuse).await, |worker| worker).await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!(content(&answer), "`water-plants` is there.", "{answer:?}");
    let second = &stage.model.turns()[1];
    let said: Vec<&str> = second.messages().iter().filter_map(|it| it["role"].as_str()).collect();
    assert_eq!(
        &said[said.len() - 2..],
        ["assistant", "user"],
        "the reply comes before what is said about it"
    );
}

/// A reply that is never a step costs two model calls, and is not taken for a refusal of the server.
#[tokio::test]
async fn model_that_writes_no_steps_is_asked_twice() {
    let stage = Stage::typed([json!({ "max_tokens": "a tool" })]).await;
    let answer = stage.ask("Hello").await;
    assert_eq!(answer.status, Status::Failed);
    assert_eq!(stage.model.asked().len(), 2, "{answer:?}");
}
