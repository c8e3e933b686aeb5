//! O1: a structured output is asked for in a context of its own, from the model that suits the question, and
//! within a time limit. The answer says what it cost.

use serde_json::json;
use subjects::{
    Act, Completion, ErrorCode, FindingsStatus, Handoff, Plan, Status, Step, StepOutcome, Work, streams,
};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, handoff,
    schedule, typical, verify,
};

/// What the assessment of [`typical`] says, and no other request may contain.
const REASON: &str = "several pages change";

fn plan(goal: &str) -> Handoff {
    let (acceptance_criteria, constraints) = (Vec::new(), Vec::new());
    handoff(Work::Plan(Plan { goal: goal.to_owned(), acceptance_criteria, constraints, task_id: None }))
}

/// Asks a server that has a model for each hint: `fast`, `strong`, and `scripted` as the usual one.
fn asking(worker: WorkerBuilder, model: &Model) -> WorkerBuilder {
    let asking = worker.asking(model).set("inference.fast_model", "fast");
    let asking = asking.set("inference.strong_model", "strong");
    asking.set("inference.price.prompt", "2").set("inference.price.completion", "10")
}

/// Returns what each request asked for, and which model it named.
fn named_models(asked: &[ModelRequest]) -> Vec<(&str, &str)> {
    asked
        .iter()
        .map(|asked| (asked.form().unwrap_or("turn"), asked.body["model"].as_str().unwrap()))
        .collect()
}

fn model_steps(answer: &Completion) -> Vec<&Step> {
    let is_of_model = |step: &&Step| matches!(step.act, Act::Model | Act::Think);
    answer.trace.steps.iter().filter(is_of_model).collect()
}

/// Checks that this many replies of 100 and 10 tokens are counted and priced.
#[track_caller]
fn assert_usage(usage: subjects::Usage, replies: u32) {
    let tokens = (usage.model_calls, usage.prompt_tokens, usage.completion_tokens);
    assert_eq!(tokens, (replies, 100 * u64::from(replies), 10 * u64::from(replies)));
    let cost = usage.cost_usd.expect("a price");
    assert!((cost - f64::from(replies) * (100.0 * 2.0 + 10.0 * 10.0) / 1e6).abs() < 1e-12, "{cost}");
}

/// The assessment goes to the fast model, plans of some size and judgements to the strong one, and all else
/// to the usual one.
#[tokio::test]
async fn each_question_goes_to_its_model_in_a_context_of_its_own() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let think = |asked: &ModelRequest| {
        let mut thought = typical(asked.form().unwrap());
        if asked.form() == Some("assessment") && asked.body["messages"].to_string().contains("misprint") {
            thought["scope"] = json!("small");
        }
        Script::Say(thought.to_string())
    };
    let model = Model::start_with_structured([Script::say("Hello.")], think).await;
    let manager = asking(Worker::manager(&nats), &model).calling_process(&gateway).await;
    let _manager = manager.start().await;
    let analyst = asking(Worker::analyst(&nats), &model).calling_process(&gateway).await;
    let _analyst = analyst.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut seen = 0;
    for (handoff, expected) in [
        (plan("Publish the documentation"), vec![("assessment", "fast"), ("plan", "strong")]),
        (plan("Correct a misprint"), vec![("assessment", "fast"), ("plan", "scripted")]),
        (schedule("Every Monday: check the links."), vec![("scheduled_task", "scripted")]),
        (chat("Hello"), vec![("turn", "scripted")]),
    ] {
        let id = orchestrator.publish(&handoff).await;
        let answer = orchestrator.completion(handoff.kind(), id).await;
        assert_eq!(answer.status, Status::Completed, "{answer:?}");
        let asked = model.asked().split_off(seen);
        seen += asked.len();
        assert_eq!(named_models(&asked), expected);
        let steps = model_steps(&answer);
        let used: Vec<String> = expected.iter().map(|(_, model)| format!("local/{model}")).collect();
        assert_eq!(steps.iter().map(|step| step.name.clone()).collect::<Vec<_>>(), used);
        assert_usage(answer.usage, u32::try_from(expected.len()).unwrap());
    }
    let asked = model.asked();
    for (index, request) in asked.iter().enumerate() {
        let text = request.body["messages"].to_string();
        assert!(request.messages().iter().all(|message| message["role"] != "assistant"), "{text}");
        assert!(!text.contains(REASON), "{text}");
        assert_eq!(text.contains("Publish the documentation"), index < 2, "{text}");
    }

    let client = gateway.agent(&gateway.manager().await);
    let new = json!({ "name": "deploy-docs", "user_id": "ada" });
    let task = gateway.call(&client, "db.task.create", new).await.unwrap().structured.unwrap();
    let task = task["task_id"].as_str().unwrap();
    let question = verify(task);
    let lease =
        json!({ "agent": "project_analyst", "user_id": "ada", "handoff_id": question.id, "task_id": task });
    orchestrator.publish_under(&question, &gateway.lease(lease).await.1).await;
    let findings = orchestrator.findings(question.id).await;
    assert_eq!((findings.status, findings.error), (FindingsStatus::Pass, None));
    assert_eq!(named_models(&model.asked()[seen..]), [("judgement", "strong")]);
    assert_usage(findings.usage, 1);
}

/// A reply that does not come within `agent.think_timeout` is given up, long before the server counts as
/// silent. Without an assessment the plan is made by the strong model; without a plan the handoff fails.
#[tokio::test]
async fn question_that_takes_too_long_is_given_up() {
    const TOO_LATE: &str = ": no answer within 1s";
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let think = |asked: &ModelRequest| match asked.form() {
        Some("plan") if !asked.body["messages"].to_string().contains("perpetual motion") => {
            Script::Say(typical("plan").to_string())
        }
        _ => Script::HangAfter("{".to_owned()),
    };
    let model = Model::start_with_structured([], think).await;
    let manager = asking(Worker::manager(&nats), &model).calling_process(&gateway).await;
    let manager = manager.set("inference.timeout", "10m").set("agent.think_timeout", "1s");
    let _manager = manager.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let ask = async |goal: &str| {
        let handoff = plan(goal);
        let id = orchestrator.publish(&handoff).await;
        orchestrator.completion(handoff.kind(), id).await
    };
    let answer = ask("Publish the documentation").await;
    assert_eq!((answer.status, answer.trace.input.as_ref()), (Status::Completed, None), "{answer:?}");
    let [assessment, plan] = &model_steps(&answer)[..] else { panic!("{answer:?}") };
    assert_eq!(assessment.outcome, StepOutcome::Failed);
    assert!(assessment.detail.as_deref().unwrap().ends_with(TOO_LATE), "{assessment:?}");
    assert_eq!((plan.outcome, plan.name.as_str()), (StepOutcome::Ok, "local/strong"));
    assert_eq!((answer.tasks.len(), orchestrator.stored(streams::DEAD).await), (2, 0));

    let answer = ask("Invent perpetual motion").await;
    let error = answer.error.as_ref().unwrap();
    assert_eq!((answer.status, error.code), (Status::Failed, ErrorCode::InferenceUnavailable), "{answer:?}");
    assert!(error.message.contains(TOO_LATE), "{error:?}");
    assert_eq!((answer.tasks.len(), orchestrator.stored(streams::DEAD).await), (0, 1));
    let each = [("assessment", "fast"), ("plan", "strong")];
    assert_eq!(named_models(&model.asked()), [each, each].concat(), "each is asked once");
}
