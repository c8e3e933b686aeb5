//! Reviews at every crash point: a manager that reviews is killed at each one, and another goes on without a
//! second turn, a second verification or a second finding.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use subjects::{
    Completion, Handoff, HandoffId, Kind, Role,
    workflow::{Decision, ReviewDecision},
};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, eventually,
    job_step, review, typical,
};

use super::{AT_ONCE, passed, turns};

const UNDISTURBED: &str = "y0";

/// A gateway, and a model server for each role, so that the turns of each can be counted.
struct Stage {
    gateway: GatewayProcess,
    manager_model: Model,
    analyst_model: Model,
}

/// One review and what it needs: the task, the handoff and the signed lease.
struct Reviewed {
    task: String,
    handoff: Handoff,
    lease: (String, String),
}

/// Revises every step, which needs both what the analyst found and the model.
fn decide(asked: &ModelRequest) -> Script {
    let mut draft = typical(asked.form().unwrap_or_default());
    draft["decision"] = json!("revise");
    draft["step"] = typical("steps")["steps"][0].clone();
    draft["issues"] =
        json!([{ "severity": "major", "location": null, "problem": "It is slow.", "fix": "Hurry." }]);
    Script::Say(draft.to_string())
}

impl Stage {
    async fn start() -> Self {
        let turns = [Script::say("unused")];
        let manager_model = Model::start_with_structured(turns, decide).await;
        let analyst_model = Model::start([Script::say("unused")]).await;
        Self { gateway: GatewayProcess::start().await, manager_model, analyst_model }
    }

    async fn manager(&self, nats: &Nats) -> WorkerBuilder {
        let manager = Worker::manager(nats).asking(&self.manager_model).set("analysts.enabled", "true");
        manager.set("worker.ack_wait", "1s").calling_process(&self.gateway).await
    }

    async fn analyst(&self, nats: &Nats) -> Worker {
        let analyst = Worker::analyst(nats).asking(&self.analyst_model);
        analyst.calling_process(&self.gateway).await.start().await
    }

    /// Creates a task for a review of its step.
    async fn prepare(&self, name: &str) -> Reviewed {
        let client = self.gateway.agent(&self.gateway.manager().await);
        let new = json!({ "name": name, "user_id": "ada" });
        let created = self.gateway.call(&client, "db.task.create", new).await.unwrap().structured.unwrap();
        let task = created["task_id"].as_str().unwrap().to_owned();
        let mut step = job_step(name);
        step.criteria = vec![format!("{name} was published")];
        let handoff = review(&task, step);
        let lease = json!({
            "agent": "project_manager", "user_id": "ada", "task_id": task, "handoff_id": handoff.id,
        });
        let lease = self.gateway.lease(lease).await;
        Reviewed { task, handoff, lease }
    }

    /// How often the models of manager and analyst were asked about a step.
    fn asked(&self, name: &str) -> [usize; 2] {
        let names =
            |asked: &&ModelRequest| asked.body["messages"].to_string().contains(&format!("{name} was"));
        [&self.manager_model, &self.analyst_model].map(|model| model.asked().iter().filter(names).count())
    }

    async fn findings(&self, task: &str) -> usize {
        let client = self.gateway.agent(&self.gateway.manager().await);
        let listed = self.gateway.call(&client, "db.finding.list", json!({ "task_id": task })).await;
        listed.unwrap().structured.unwrap()["items"].as_array().unwrap().len()
    }
}

/// What must not depend on the number of attempts.
fn comparable(name: &str, task: &str, answer: &Completion) -> Value {
    let review: &ReviewDecision = answer.review.as_ref().expect("a decision");
    assert_eq!(review.decision, Decision::Revise);
    let steps: Vec<_> = answer.trace.steps.iter().map(|step| (step.act, step.outcome)).collect();
    let verifications: Vec<_> = answer.verifications.iter().map(|it| (it.status, &it.findings)).collect();
    let text = json!({
        "review": review, "said": answer.message, "steps": steps, "verifications": verifications,
        "usage": (answer.usage.model_calls, answer.usage.tool_calls),
    });
    serde_json::from_str(&text.to_string().replace(task, "<task>").replace(name, "<step>")).unwrap()
}

/// W6, O11: one answer, no turn paid twice once it is stored, one verification, the same decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_killed_at_any_point_is_continued_by_another() {
    let stage = Stage::start().await;
    let (points, undisturbed) = undisturbed(&stage).await;
    println!("{} crash points: {}", points.len(), points.join(" "));
    for kind in ["Claim", "Append", "BeforeVerification", "VerificationAnswered", "Model", "Answer", "Ack"] {
        assert!(points.iter().any(|point| point.contains(kind)), "no crash point of {kind}");
    }
    let runs = points.iter().enumerate().map(|(number, point)| {
        let (stage, undisturbed) = (&stage, &undisturbed);
        async move { kill_at(stage, &format!("x{number}x"), point, undisturbed).await }
    });
    futures_util::stream::iter(runs).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn undisturbed(stage: &Stage) -> (Vec<String>, Value) {
    let nats = Nats::start();
    let manager = stage.manager(&nats).await.stopping_at("nowhere").start().await;
    let _analyst = stage.analyst(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let Reviewed { task, handoff, lease } = stage.prepare(UNDISTURBED).await;
    orchestrator.publish_under(&handoff, &lease.1).await;
    let answer = orchestrator.completion(Kind::Review, handoff.id).await;
    eventually("its last crash point", async || {
        passed(&manager).iter().any(|it| it == "Acknowledged#1").then_some(())
    })
    .await;
    assert_eq!((stage.asked(UNDISTURBED), stage.findings(&task).await), ([1, 1], 1));
    (passed(&manager), comparable(UNDISTURBED, &task, &answer))
}

async fn kill_at(stage: &Stage, name: &str, point: &str, undisturbed: &Value) {
    let nats = Nats::start();
    let settings = stage.manager(&nats).await;
    let mut first = settings.clone().stopping_at(point).start().await;
    let _analyst = stage.analyst(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let Reviewed { task, handoff, lease } = stage.prepare(name).await;
    let id: HandoffId = handoff.id;
    orchestrator.publish_under(&handoff, &lease.1).await;
    eventually(&format!("{point} to be reached"), async || {
        first.log().contains("\"stops\":true").then_some(())
    })
    .await;
    first.process.kill();
    // A turn that was requested and not stored is requested again.
    let is_answered = orchestrator.answer(Kind::Review, id).await.is_some();
    let is_stored = is_answered || turns(&orchestrator.journal(id).await) > 0;
    let paid_before = stage.asked(name)[0];
    let second = settings.start().await;
    let answer = orchestrator.completion(Kind::Review, id).await;
    assert_eq!(comparable(name, &task, &answer), *undisturbed, "{point}");
    let expected = if is_stored { 1 } else { paid_before + 1 };
    assert_eq!(stage.asked(name), [expected, 1], "{point}: turns of manager and analyst");
    assert_eq!(stage.findings(&task).await, 1, "{point}: findings");
    orchestrator.wait_until_settled().await;
    let answers = orchestrator.all_answers(Role::ProjectManager, 1, Duration::from_secs(10)).await;
    assert_eq!(answers, [(id, 1)].into(), "{point}");
    let verified = orchestrator.all_answers(Role::ProjectAnalyst, 1, Duration::from_secs(10)).await;
    assert_eq!(verified, [(answer.verifications[0].handoff_id, 1)].into(), "{point}: verifications");
    drop(second);
}
