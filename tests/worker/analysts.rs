//! Manager → analyst → manager: two processes, one NATS, and findings that reach the answer.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use subjects::{
    Act, Completion, FindingsStatus, Kind, Status, StepOutcome, Verdict,
    streams::{self, Layout},
};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, eventually,
    typical,
};

const PUBLISHED: &str = "published in 212 s";
const FAILED: &str = "the upload failed after 3 tries";

/// The model of a manager: requests a verification, then answers with its result.
async fn asking_for_verification() -> Model {
    let wanted = json!({ "task_id": "deploy-docs-2" });
    let turns =
        [Script::call("request_verification", &wanted), Script::say("Verified: it was published in 212 s.")];
    Model::start_with_structured(turns, |asked: &ModelRequest| {
        Script::Say(typical(asked.form().unwrap()).to_string())
    })
    .await
}

async fn ask(orchestrator: &Orchestrator) -> Completion {
    let id = orchestrator.publish(&chat("Is deploy-docs-2 done?")).await;
    orchestrator.completion(Kind::Chat, id).await
}

fn told(model: &Model) -> String {
    let last = model.turns().pop().unwrap();
    last.messages().last().unwrap()["content"].as_str().unwrap().to_owned()
}

fn enabled(worker: WorkerBuilder) -> WorkerBuilder {
    worker.set("analysts.enabled", "true")
}

/// Judges by the log of the task. A judgement that quotes a log which is not in the material does not count.
fn judge(asked: &ModelRequest) -> Script {
    let is_published = asked.body["messages"].to_string().contains(PUBLISHED);
    let (verdict, evidence) = if is_published { ("met", PUBLISHED) } else { ("not_met", FAILED) };
    let judgement = json!({ "verdict": verdict, "severity": "major", "evidence": evidence,
        "location": "logs/deploy.txt", "recommended_action": null });
    Script::Say(judgement.to_string())
}

/// W6: the findings of an analyst are recorded at the gateway, reach the model and the answer of the manager,
/// and decide whether the task passes.
#[tokio::test]
async fn findings_decide_the_managers_answer() {
    for layout in Layout::ALL {
        findings_flow_back(layout).await;
    }
}

async fn findings_flow_back(layout: Layout) {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let client = gateway.agent(&gateway.manager().await);
    let call = async |tool: &str, arguments: Value| {
        gateway.call(&client, tool, arguments).await.unwrap().structured.unwrap()
    };
    let wanted = |task: &str| Script::call("request_verification", &json!({ "task_id": task }));
    let turns = [
        wanted("deploy-docs"),
        Script::say("Verified: it was published in 212 s."),
        wanted("deploy-blog"),
        Script::say("It is not done."),
    ];
    let model = Model::start_with_structured(turns, judge).await;
    let manager = enabled(Worker::manager(&nats)).laid_out(layout).asking(&model);
    let _manager = manager.calling_process(&gateway).await.start().await;
    let analyst = Worker::analyst(&nats).laid_out(layout).asking(&model);
    let _analyst = analyst.calling_process(&gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&nats).await.laid_out(layout);
    for (name, log, status, verdict, remedies) in [
        ("deploy-docs", PUBLISHED, FindingsStatus::Pass, Verdict::Met, 0),
        ("deploy-blog", FAILED, FindingsStatus::Fail, Verdict::NotMet, 1),
    ] {
        let new = json!({ "name": name, "user_id": "ada", "acceptance_criteria": ["The site is public"] });
        let task = call("db.task.create", new).await["task_id"].clone();
        call("artifact.put", json!({ "task_id": task, "path": "logs/deploy.txt", "content": log })).await;
        let question = chat(&format!("Is {name} done?"));
        let lease = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": question.id });
        orchestrator.publish_under(&question, &gateway.lease(lease).await.1).await;
        let answer = orchestrator.completion(Kind::Chat, question.id).await;
        assert_eq!(answer.status, Status::Completed, "{answer:?}");
        let [verification] = &answer.verifications[..] else { panic!("{answer:?}") };
        assert_eq!(verification.status, Some(status), "{verification:?}");
        let [finding] = &verification.findings[..] else { panic!("{verification:?}") };
        assert_eq!((finding.verdict, finding.evidence.as_deref()), (verdict, Some(log)));
        assert_eq!(answer.tasks.len(), remedies, "what is not met becomes a task: {answer:?}");
        let step = answer.trace.steps.iter().find(|step| step.act == Act::Analyst).unwrap();
        assert_eq!((step.outcome, step.name.as_str()), (StepOutcome::Ok, name));
        let told = told(&model);
        assert!(told.contains(&format!("\"status\":{}", json!(status))) && told.contains(log), "{told}");
        // The analyst's answer is stored like any other, and its findings are recorded for the user.
        let own = orchestrator.answer(Kind::Verify, verification.handoff_id).await;
        assert!(matches!(own, Some(subjects::Answer::Findings(_))));
        let found = call("db.finding.list", json!({ "task_id": task })).await;
        assert_eq!((&found["items"][0]["verdict"], &found["items"][1]), (&json!(verdict), &Value::Null));
        let task = task.as_str().unwrap();
        let rows = gateway.audit(&format!("tool=db.finding.create&task_id={task}")).await;
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((&row["agent"], &row["user_id"]), (&json!("project_analyst"), &json!("ada")));
    }
    orchestrator.wait_until_settled().await;
}

/// P18: with analysts disabled no verification is published, and the model is told so.
#[tokio::test]
async fn disabled_verification_is_reported_in_the_answer() {
    let nats = Nats::start();
    let model = asking_for_verification().await;
    let _manager = Worker::manager(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = ask(&orchestrator).await;
    let [verification] = &answer.verifications[..] else { panic!("{answer:?}") };
    assert_eq!(verification.status, None);
    assert!(verification.error.as_ref().unwrap().message.contains("disabled"), "{verification:?}");
    // The answer reports it regardless of what the model says.
    let said = &answer.message.as_ref().unwrap().content;
    assert!(
        said.contains("`deploy-docs-2` was not verified: verification by analysts is disabled"),
        "{said}"
    );
    let step = answer.trace.steps.iter().find(|step| step.act == Act::Analyst).unwrap();
    assert_eq!(step.outcome, StepOutcome::Failed);
    assert!(step.detail.as_ref().unwrap().contains("disabled"), "{step:?}");
    assert!(told(&model).contains("Not verified: verification by analysts is disabled"), "{}", told(&model));
    orchestrator.wait_until_settled().await;

    // The offline model repeats what it was told.
    let nats = Nats::start();
    let _manager = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("verify deploy-docs-2")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert!(answer.message.unwrap().content.contains("disabled"));
}

/// A manager signs its verifications; an analyst that requires signatures accepts them from that key and for
/// that subject.
#[tokio::test]
async fn a_verification_is_signed() {
    let nats = Nats::start();
    let folder = tempfile::tempdir().unwrap();
    let key = nkeys::KeyPair::new_user();
    let seed = folder.path().join("seed");
    fs::write(&seed, key.seed().unwrap()).unwrap();
    let trusted = format!("[{{key=\"{}\", subjects=[\"pa.verify\"]}}]", key.public_key());
    let model = asking_for_verification().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let signing = |worker: WorkerBuilder| worker.set("security.signing_key_file", seed.display().to_string());
    let _manager = signing(enabled(Worker::manager(&nats))).asking(&model).start().await;
    let _analyst =
        Worker::analyst(&nats).set("security.trusted_producers", &trusted).asking(&model).start().await;
    let answer = ask(&orchestrator).await;
    // The analyst has no criteria to judge, but it accepted the handoff: an unsigned one would get no answer.
    assert_eq!(answer.verifications[0].status, Some(FindingsStatus::NeedsClarification), "{answer:?}");
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
}

/// P18: an instance runs no more verifications at once than allowed, and waits for them only for a limited
/// time.
#[tokio::test]
async fn verifications_are_limited_in_number_and_time() {
    let nats = Nats::start();
    let wanted = || Script::call("request_verification", &json!({ "task_id": "deploy-docs-2" }));
    let model = Model::start([wanted(), wanted(), Script::say("Not verified.")]).await;
    let settings =
        enabled(Worker::manager(&nats)).set("analysts.max_concurrent", "1").set("analysts.timeout", "3s");
    let _manager = settings.asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    // No analyst is running: two handoffs request a verification, and one of them waits for the other.
    let ids = [orchestrator.publish(&chat("first")).await, orchestrator.publish(&chat("second")).await];
    eventually("both model requests", async || (model.turns().len() == 2).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(orchestrator.queued().await, 2 + 1, "two chats in progress and one verification");
    for id in ids {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert!(answer.verifications[0].error.as_ref().unwrap().message.contains("within 3s"), "{answer:?}");
    }
}
