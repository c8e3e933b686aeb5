//! Who may call `schedule.*`.

use serde_json::json;
use testkit::GatewayProcess;

use super::support::{Caller, orchestrator, prompt};

const TOOLS: &str = "create delete fire get list preview run.end run.sent run.unsent run_now runs update";

/// P16: schedules are the orchestrator's; no agent that works for a user sees them.
#[tokio::test]
async fn only_orchestrators_see_the_tools_of_schedules() {
    let gateway = GatewayProcess::start().await;
    let names: Vec<String> = TOOLS.split(' ').map(|tool| format!("schedule.{tool}")).collect();
    let of_schedules = async |secret: &str| {
        let mut seen = gateway.tools(secret).await;
        seen.retain(|tool| tool.starts_with("schedule."));
        seen.sort();
        seen
    };
    assert_eq!(of_schedules(&orchestrator(&gateway).await).await, names);
    let manager = gateway.manager().await;
    let bound = gateway.bound("sandbox", "ada", "t-1").await;
    for secret in [&manager, &bound] {
        assert_eq!(of_schedules(secret).await, Vec::<String>::new());
        let caller = Caller::new(&gateway, secret);
        for (tool, arguments) in [("fire", json!({})), ("list", json!({ "user_id": "ada" }))] {
            let why = caller.call(tool, arguments).await.expect_err("it is denied");
            assert!(why.contains("Unknown tool"), "{why}");
        }
    }
}

/// A run is claimed once also if the orchestrator repeats a call whose answer it has not seen.
#[tokio::test]
async fn each_fire_has_an_audit_row_and_its_runs_have_leases() {
    let gateway = GatewayProcess::start().await;
    let secret = orchestrator(&gateway).await;
    let caller = Caller::new(&gateway, &secret);
    let new = prompt("soon", &json!({ "type": "interval", "every_seconds": 86_400 }));
    caller.must("create", json!({ "user_id": "ada", "new": new })).await;
    let run = caller.must("run_now", json!({ "user_id": "ada", "schedule": "soon" })).await;
    let runs = caller.fire_all().await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["handoff_id"], run["run_id"]);
    let leases = gateway.must("GET", "/api/v1/leases?user_id=ada", None).await;
    assert_eq!(leases[0]["handoff_id"], run["run_id"]);
    assert_eq!(leases[0]["agent"], "project_manager");
    let rows = gateway.audit("tool=schedule.fire").await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["agent"], &rows[0]["status"]), (&json!("orchestrator"), &json!("success")));
    // The lease is what a manager works with.
    let manager = gateway.agent(&gateway.manager().await);
    let task = json!({ "title": "Say hello", "run_id": run["run_id"] });
    let lease = runs[0]["lease"].as_str();
    let made = gateway.call_under(&manager, lease, "db.task.create", task).await.expect("an answer");
    assert_eq!(made.structured.expect("a task")["user_id"], "ada");
}
