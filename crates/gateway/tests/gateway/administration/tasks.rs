//! Tasks, for administrators: over REST, with cynodectl, and in the console.

use serde_json::{Value, json};
use testkit::GatewayProcess;

use super::support::{ctl, parsed, user};
use crate::console::support::Gateway;

const FAILED: i32 = 1;
const EVIL: &str = "<script>alert(1)</script>\u{1b}[2J";

/// Creates a task as an agent and returns its id.
async fn create(gateway: &GatewayProcess, arguments: Value) -> String {
    let manager = gateway.agent(&gateway.manager().await);
    let created = gateway.call(&manager, "db.task.create", arguments).await.unwrap();
    created.structured.unwrap()["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tasks_are_listed_and_shown() {
    let gateway = GatewayProcess::start().await;
    assert!(ctl(&gateway, &["tasks", "ls"]).await.stdout.contains("no tasks"));
    gateway.must("PUT", "/api/v1/projects/p-1", Some(json!({ "name": "p-1", "title": "One" }))).await;
    let fence = json!({
        "name": "paint-the-fence", "description": EVIL, "acceptance_criteria": ["It is blue."],
        "project_id": "p-1", "user_id": "ada",
    });
    let fence = create(&gateway, fence).await;
    let house = create(&gateway, json!({ "name": "paint-the-house", "user_id": "bob" })).await;

    let listed = ctl(&gateway, &["tasks", "ls"]).await;
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");
    assert!(listed.stdout.contains(&fence) && listed.stdout.contains("pending"), "{listed:?}");
    assert!(listed.stdout.find(&house) < listed.stdout.find(&fence), "the last changed first: {listed:?}");
    for (filter, expected) in [
        (["--project", "p-1"], &fence),
        (["--user", "bob"], &house),
        (["--text", "alert"], &fence),
        (["--limit", "1"], &house),
    ] {
        let listed = ctl(&gateway, &[&["--json", "tasks", "ls"][..], &filter].concat()).await;
        assert_eq!(parsed(&listed)["task_id"], **expected, "{filter:?}");
    }
    let none = ctl(&gateway, &["tasks", "ls", "--status", "failed"]).await;
    assert!(none.stdout.contains("no tasks"), "{none:?}");
    for named in [&*fence, "paint-the-fence"] {
        let shown = ctl(&gateway, &["tasks", "show", named]).await;
        assert!(shown.stdout.contains(&fence) && shown.stdout.contains("It is blue."), "{shown:?}");
        assert!(!shown.stdout.contains('\u{1b}'), "{shown:?}");
    }
    let missing = ctl(&gateway, &["tasks", "show", "nope"]).await;
    assert_eq!(missing.code, FAILED, "{missing:?}");
    assert!(missing.stderr.contains("`nope` not found"), "{missing:?}");

    let ada = user(&gateway, "ada").await;
    assert_eq!(gateway.ask_as(&ada, "GET", "/api/v1/tasks", None).await.status, 403);

    let console = Gateway::of(&gateway);
    let admin = console.administrator().await;
    let page = format!("/console/tasks/{fence}");
    let listed = admin.get("/console/tasks?text=fence").await;
    assert!(listed.shows(&page) && !listed.shows(&house), "{}", listed.body);
    let shown = admin.get(&page).await;
    assert!(shown.shows("It is blue.") && shown.shows("Jobs of this task"), "{}", shown.body);
    assert!(!shown.shows("<script>alert"), "{}", shown.body);
    assert_eq!(admin.get("/console/tasks/nope").await.status, 404);
    assert!(admin.get("/console/tasks?status=failed").await.shows("No matching tasks."));
}
