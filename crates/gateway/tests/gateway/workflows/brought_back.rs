//! What people are told when a workflow cannot do what they want, and how they get on.

use serde_json::{Value, json};

use super::support::World;
use crate::{administration::support::ctl, console::support::Gateway};

/// A task that was cancelled only because it depends on another has a way back.
#[tokio::test]
async fn tasks_canceled_with_another_are_named_and_can_be_brought_back() {
    let world = World::new().await;
    let first = world.task_with(json!({ "name": "first", "user_id": "ada" })).await;
    let named = |name: &str, after: &str| json!({ "name": name, "user_id": "ada", "depends_on": [after] });
    let plain = world.task_with(named("plain", &first)).await;
    let last = world.task_with(named("last", &plain)).await;
    for task in [&first, &last] {
        world.ok("workflow.start", json!({ "task_id": task })).await;
    }
    let cancelled = ctl(&world.gateway, &["workflows", "cancel", "first"]).await;
    assert!(cancelled.stderr.contains("cancelled with it: last, plain."), "{cancelled:?}");
    assert_eq!(world.status(&last).await, ("cancelled".to_owned(), "canceled".to_owned()));

    world.ok("workflow.retry", json!({ "task_id": first })).await;
    let started = world.ok("workflow.start", json!({ "task_id": plain })).await;
    assert_eq!(started["waiting_because"], "waits for first", "{started}");
    assert_eq!(world.status(&plain).await, ("queued".to_owned(), "pending".to_owned()));
    world.ok("workflow.retry", json!({ "task_id": last })).await;
    // One after the other, they run.
    let done = async |task: &str, run: i64| {
        let epoch = world.acquire(task, run).await["epoch"].as_i64().expect("an epoch");
        world.release(task, epoch, json!({ "done": { "summary": "" } })).await;
    };
    done(&first, 2).await;
    done(&plain, 1).await;
    done(&last, 2).await;
    let error = world.fails("workflow.start", json!({ "task_id": plain })).await;
    assert!(error["message"].as_str().expect("a text").contains("create a new task"), "{error}");
}

/// The page of a cancelled task offers it, too; and one of a task without dependencies is ready at once.
#[tokio::test]
async fn canceled_task_without_a_workflow_is_started_from_its_page() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let task = world.task("build").await;
    world.ok("db.task.update_status", json!({ "task_id": task, "status": "canceled" })).await;
    let shown = admin.get(&format!("/console/tasks/{task}")).await;
    assert!(
        shown.shows("was cancelled without a workflow") && shown.shows("Start its workflow"),
        "{}",
        shown.body
    );
    admin.post("/console/workflows/start", &[("id", &task)]).await;
    assert_eq!(world.status(&task).await, ("queued".to_owned(), "ready".to_owned()));
    world.until_sent(&task, &[1]).await;
}

/// A task without a user has no owner: an administrator says for whom its workflow acts.
#[tokio::test]
async fn administrator_starts_a_task_without_a_user_for_one() {
    let world = World::new().await;
    let gateway = &world.gateway;
    for name in ["one", "two", "three"] {
        world.task_with(json!({ "name": name })).await;
    }
    world.task_with(json!({ "name": "hers", "user_id": "eve" })).await;
    let start = async |more: &[&str]| ctl(gateway, &[&["workflows", "start"], more].concat()).await;
    let refused = start(&["one"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("workflows start TASK --user ID"), "{refused:?}");
    assert!(!refused.stderr.contains("(steps)"), "{refused:?}");
    let refused = start(&["hers", "--user", "ada"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("the task belongs to eve"), "{refused:?}");
    assert_eq!(start(&["one", "--user", "ada"]).await.code, 0);
    let body = Some(json!({ "user_id": "ada" }));
    let started = gateway.must("POST", "/api/v1/workflows/two/start", body).await;
    assert_eq!(started["user_id"], "ada", "{started}");

    let console = Gateway::of(gateway);
    let admin = console.administrator().await;
    let three = gateway.must("GET", "/api/v1/tasks/three", None).await;
    let id = three["task_id"].as_str().or(three["task"]["task_id"].as_str()).expect("an id").to_owned();
    assert!(admin.get(&format!("/console/tasks/{id}")).await.shows("name=\"user_id\""));
    admin.post("/console/workflows/start", &[("id", &id), ("user_id", "ada")]).await;
    let listed = gateway.must("GET", "/api/v1/workflows?user_id=ada", None).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "{listed}");
    // It acts for that user.
    let job = json!({
        "task_id": id, "epoch": world.acquire(&id, 1).await["epoch"], "key": "k", "step": "s",
        "run": { "command": ["true"] },
    });
    world.runs("workflow.job", job).await;
}

/// Of two people who answer, the second is told that the first did; and given steps that are not used are
/// not taken silently.
#[tokio::test]
async fn second_answer_and_second_start_say_what_was_before_them() {
    let world = World::new().await;
    let task = world.task_with(json!({ "name": "build", "user_id": "ada" })).await;
    world.ok("workflow.start", json!({ "task_id": task })).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("steps.json").display().to_string();
    std::fs::write(&file, r#"[{ "name": "make", "kind": "job", "script": "make" }]"#).expect("written");
    let again = ctl(&world.gateway, &["workflows", "start", "build", "--steps", &file]).await;
    assert!(again.stdout.contains("is active already, and the given steps are not used"), "{again:?}");

    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    let answer =
        async |line: &[&str]| ctl(&world.gateway, &[&["workflows", "resume", "build"], line].concat()).await;
    let none = answer(&["yes"]).await;
    assert!(none.stderr.contains("nothing to resume"), "nothing was asked yet: {none:?}");
    let question = json!({ "waiting": { "for": "approval", "question": "Deploy?", "interrupt_id": "i-1" } });
    world.release(&task, epoch, question).await;
    assert_eq!(answer(&["yes", "--question", "i-1"]).await.code, 0);
    for run in [None, Some(2)] {
        if let Some(run) = run {
            let epoch = world.acquire(&task, run).await["epoch"].as_i64().expect("an epoch");
            // What the runner tells of the answer does not name who gave it.
            let told = json!({
                "task_id": task, "epoch": epoch, "checkpoint_id": "1f", "kind": "msgpack", "data": "AAEC",
                "events": [{ "node": "ask_person", "outcome": "answered" }],
            });
            world.runs("workflow.checkpoint.put", told).await;
        }
        let second = answer(&["no"]).await;
        assert!(second.code != 0 && second.stderr.contains("answered already, by "), "{second:?}");
    }
    assert!(answer(&[]).await.stderr.contains("is already running: there is nothing to resume"));
}

/// A question that understands decisions has a button for each.
#[tokio::test]
async fn question_about_a_step_has_buttons_for_its_decisions() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let (task, epoch) = world.taken("build").await;
    let page = format!("/console/workflows/{task}");
    let asks = async |epoch: &Value, question: &str, id: &str| {
        let asked = json!({ "waiting": { "for": "question", "question": question, "interrupt_id": id } });
        world.release(&task, epoch.as_i64().expect("an epoch"), asked).await;
        admin.get(&page).await
    };
    let decision =
        "The step fails again and again.\n\nAnswer retry, accept or stop, or say what should be done.";
    let shown = asks(&json!(epoch), decision, "i-1").await;
    for expected in [
        "value=\"retry\"",
        ">Retry</button>",
        "value=\"accept\"",
        ">Accept</button>",
        "value=\"stop\"",
        ">Stop</button>",
        "Send the answer",
        "value=\"i-1\"",
    ] {
        assert!(shown.shows(expected), "{expected}: {}", shown.body);
    }
    let fields = [("id", &*task), ("question_id", "i-1"), ("input", "accept")];
    admin.post("/console/workflows/resume", &fields).await;
    let taken = world.acquire(&task, 2).await;
    assert_eq!(taken["input"], "accept");
    // The page's own button is not called as the workflow's.
    let running = admin.get(&page).await;
    assert!(running.shows("Stop refreshing") && running.body.matches(">Pause</button>").count() == 1);
    let shown = asks(&taken["epoch"], "Which of the two?", "i-2").await;
    assert!(shown.shows("Send the answer") && !shown.shows(">Retry</button>"), "{}", shown.body);
}
