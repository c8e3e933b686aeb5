//! W7: a schedule that fires, with the gateway as the store of tasks and workflows.

use serde_json::json;
use subjects::{Completion, ErrorCode, Handoff, SchedulePayloadType, Status, Work};
use testkit::{GatewayProcess, Model, Nats, Orchestrator, Worker, schedule};

struct Stage {
    gateway: GatewayProcess,
    model: Model,
    orchestrator: Orchestrator,
    _manager: Worker,
    _nats: Nats,
}

impl Stage {
    async fn start() -> Self {
        let nats = Nats::start();
        let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
        let model = Model::start([]).await;
        let manager = Worker::manager(&nats).asking(&model).calling_process(&gateway).await;
        let manager = manager.start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        Self { gateway, model, orchestrator, _manager: manager, _nats: nats }
    }

    /// Publishes a schedule on behalf of a user and returns the answer.
    async fn fire(&self, user: &str, handoff: &Handoff) -> Completion {
        let lease = json!({ "agent": "project_manager", "user_id": user, "handoff_id": handoff.id });
        self.orchestrator.publish_under(handoff, &self.gateway.lease(lease).await.1).await;
        self.orchestrator.completion(handoff.kind(), handoff.id).await
    }
}

#[tokio::test]
async fn schedule_becomes_a_task_whose_workflow_starts() {
    let stage = Stage::start().await;
    let answer = stage.fire("ada", &schedule("Every Monday: check the links.")).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert!(answer.message.as_ref().unwrap().content.contains("its workflow started"), "{answer:?}");
    let [created] = &answer.tasks[..] else { panic!("{answer:?}") };
    let client = stage.gateway.agent(&stage.gateway.manager().await);
    let task = json!({ "task_id": created.task_id });
    let task = stage.gateway.call(&client, "db.task.get", task).await.unwrap().structured.unwrap();
    let stored = ["name", "user_id", "schedule_id", "run_id"].map(|member| task[member].clone());
    assert_eq!(stored, ["check-links", "ada", "nightly", "run-1"]);
    let workflow = json!({ "task_id": created.task_id });
    let workflow = stage.gateway.call(&client, "workflow.get", workflow).await.unwrap().structured.unwrap();
    assert_eq!((&workflow["status"], &workflow["user_id"]), (&json!("queued"), &json!("ada")), "{workflow}");
    let rows = stage.gateway.audit("tool=workflow.start").await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let call = ["agent", "user_id", "run_id", "decision", "status"].map(|member| row[member].clone());
    assert_eq!(call, ["project_manager", "ada", "run-1", "allow", "success"]);
    assert_eq!(row["task_id"], json!(created.task_id));
    let [asked] = &stage.model.asked()[..] else { panic!("one question is asked") };
    assert_eq!(asked.form(), Some("scheduled_task"));
    assert!(asked.body["messages"].to_string().contains("check the links"), "{}", asked.body);
}

/// A pre-specified job needs no interpretation: neither model nor tools see it.
#[tokio::test]
async fn pre_specified_job_is_refused() {
    let stage = Stage::start().await;
    let mut job = schedule("unused");
    let Work::Schedule(work) = &mut job.work else { panic!("a schedule") };
    (work.payload_type, work.payload) = (SchedulePayloadType::JobSpec, json!({ "image": "alpine:3.20" }));
    let answer = stage.fire("ada", &job).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::NotForPma));
    assert!(stage.model.asked().is_empty());
    for tools in ["db.*", "workflow.*"] {
        assert!(stage.gateway.audit(&format!("tool={tools}")).await.is_empty(), "{tools}");
    }
}
