//! Workflows, the board and the dependency graph in the console (W10).

use serde_json::json;

use super::support::{EVIL, World};
use crate::console::support::Gateway;

#[tokio::test]
async fn pages_show_where_a_workflow_is_and_escape_what_they_show() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let empty = admin.get("/console/workflows").await;
    assert!(empty.shows("No workflows yet.") && empty.shows("cynodectl workflows start TASK"));
    assert!(admin.get("/console/workflows?status=done").await.shows("No matching workflows."));
    let task = world.task_with(json!({ "name": "build", "title": EVIL, "user_id": "ada" })).await;
    let page = format!("/console/workflows/{task}");
    assert_eq!(admin.get(&page).await.status, 404, "it has none yet");
    let shown = admin.get(&format!("/console/tasks/{task}")).await;
    assert!(shown.shows("No workflow yet.") && shown.shows("Start its workflow"), "{}", shown.body);

    let started = admin.post("/console/workflows/start", &[("id", &task)]).await;
    assert_eq!((started.status, started.header("location")), (303, Some(&*page)));
    let shown = admin.get(&page).await;
    assert!(shown.shows("It has not begun yet.") && shown.shows("Not planned yet."), "{}", shown.body);
    assert!(shown.shows("Waits for a runner.") && shown.shows("data-follow"), "{}", shown.body);
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    world.put_plan(&task, epoch).await;
    let job = world
        .runs(
            "workflow.job",
            json!({
                "task_id": task, "epoch": epoch, "key": "k/0", "step": "convert",
                "run": { "command": ["echo", EVIL] },
            }),
        )
        .await;
    let finding = json!({
        "task_id": task, "criterion": EVIL, "verdict": "not_met", "severity": "major", "evidence": EVIL,
    });
    world.ok("db.finding.create", finding).await;
    let shown = admin.get(&page).await;
    assert!(shown.shows("Now: dispatch step (convert).") && shown.shows("is-present"), "{}", shown.body);
    for expected in [
        "<svg class=\"graph engine\"",
        "2 of 3",
        "Passed",
        "with approval",
        "Not met",
        "runner-1",
        "Cancel this workflow",
        &format!("/console/jobs/{}", job["job"]["job_id"].as_str().expect("an id")),
    ] {
        assert!(shown.shows(expected), "{expected}: {}", shown.body);
    }
    let listed = admin.get("/console/workflows?status=running").await;
    assert!(listed.shows(&page), "{}", listed.body);
    let of_task = admin.get(&format!("/console/tasks/{task}")).await;
    assert!(of_task.shows("Watch this workflow") && of_task.shows("2 of 3"), "{}", of_task.body);
    for answer in [&shown, &listed, &of_task] {
        assert!(!answer.shows("<script>alert") && !answer.shows("\u{1b}"), "{}", answer.body);
    }
    assert_eq!(admin.get("/console/workflows/none").await.status, 404);
}

#[tokio::test]
async fn forms_answer_pause_resume_cancel_and_retry() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let (task, epoch) = world.taken("build").await;
    let page = format!("/console/workflows/{task}");
    let post = async |what: &str, more: &[(&str, &str)]| {
        let fields = [&[("id", &*task)], more].concat();
        let answer = admin.post(&format!("/console/workflows/{what}"), &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*page)), "{what}");
        admin.get(&page).await
    };
    let asked = json!({ "waiting": { "for": "question", "question": EVIL, "interrupt_id": "i-1" } });
    world.release(&task, epoch, asked).await;
    let shown = admin.get(&page).await;
    assert!(shown.shows("Asks you") && shown.shows("&lt;script&gt;alert(1)"), "{}", shown.body);
    assert!(shown.shows("Send the answer") && !shown.shows("<script>alert"), "{}", shown.body);
    assert!(admin.get("/console").await.shows("1 workflow waits"), "the overview says so");
    let of_task = admin.get(&format!("/console/tasks/{task}")).await;
    assert!(of_task.shows("Send the answer"), "{}", of_task.body);
    let shown = post("resume", &[("input", "")]).await;
    assert!(shown.shows("Send the answer"), "an answer is needed: {}", shown.body);
    assert!(!post("resume", &[("input", "the blue one")]).await.shows("Send the answer"));

    let taken = world.acquire(&task, 2).await;
    assert_eq!(taken["input"], "the blue one");
    let epoch = taken["epoch"].as_i64().expect("an epoch");
    let asked = json!({ "waiting": { "for": "approval", "question": "Deploy?", "interrupt_id": "i-2" } });
    world.release(&task, epoch, asked).await;
    let shown = admin.get(&page).await;
    assert!(shown.shows("Approve") && shown.shows("Refuse"), "{}", shown.body);
    assert!(shown.shows("name=\"question_id\" value=\"i-2\""), "{}", shown.body);
    post("resume", &[("input", "yes"), ("question_id", "i-2")]).await;
    assert_eq!(world.acquire(&task, 3).await["input"], "yes");

    let paused = post("pause", &[]).await;
    assert!(paused.shows("Paused") && paused.shows(">Resume</button>"), "{}", paused.body);
    assert!(post("resume", &[]).await.shows(">Pause</button>"));
    let cancelled = post("cancel", &[]).await;
    assert!(cancelled.shows("Cancelled") && cancelled.shows("Retry the failed step"), "{}", cancelled.body);
    assert!(!cancelled.shows("data-follow"), "nothing will change");
    assert!(post("retry", &[("from_start", "on")]).await.shows("Queued"));
    assert_eq!(world.status(&task).await, ("queued".to_owned(), "running".to_owned()));
    let unknown = admin.post("/console/workflows/pause", &[("id", "none")]).await;
    assert_eq!(unknown.header("location"), Some("/console/workflows"));
}

#[tokio::test]
async fn board_graph_and_projects_show_tasks() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    assert!(admin.get("/console/projects").await.shows("No projects yet."));
    for view in ["board", "graph"] {
        assert!(
            admin.get(&format!("/console/tasks?view={view}")).await.shows("No matching tasks."),
            "{view}"
        );
    }
    for id in ["fence", "house"] {
        let project = json!({ "name": id, "title": format!("{id} {EVIL}").replace('\u{1b}', "") });
        world.gateway.must("PUT", &format!("/api/v1/projects/{id}"), Some(project)).await;
    }
    let task = async |name: &str, project: &str, after: &[&str]| {
        let task = json!({
            "name": name, "title": EVIL, "project_id": project, "user_id": "ada", "depends_on": after,
        });
        world.task_with(task).await
    };
    let wood = task("buy-wood", "fence", &[]).await;
    let paint = task("paint", "fence", &["buy-wood"]).await;
    let alone = task("call-ada", "fence", &[]).await;
    let roof = task("mend-the-roof", "house", &[]).await;
    world.ok("workflow.start", json!({ "task_id": paint })).await;

    let projects = admin.get("/console/projects").await;
    assert!(projects.shows("3 pending") && projects.shows("1 pending"), "{}", projects.body);
    assert!(projects.shows("/console/tasks?view=board&amp;project_id=fence"), "{}", projects.body);
    let board = admin.get("/console/tasks?view=board&project_id=fence").await;
    for (task, is_shown) in [(&wood, true), (&paint, true), (&alone, true), (&roof, false)] {
        assert_eq!(board.shows(&format!("/console/tasks/{task}")), is_shown, "{}", board.body);
    }
    assert!(board.shows(&format!("/console/workflows/{paint}")) && board.shows("Queued"), "{}", board.body);
    let graph = admin.get("/console/tasks?view=graph&project_id=fence").await;
    assert!(
        graph.shows("<svg class=\"graph\"") && graph.shows("2 tasks, each to the right"),
        "{}",
        graph.body
    );
    assert!(graph.shows("waits for <bdi>buy-wood</bdi>"), "the same as text: {}", graph.body);
    assert!(graph.shows("Without dependencies") && graph.shows(&alone) && !graph.shows(&roof));
    let lonely = admin.get("/console/tasks?view=graph&project_id=house").await;
    assert!(lonely.shows("No task waits for another."), "{}", lonely.body);
    let of_task = admin.get(&format!("/console/tasks/{paint}")).await;
    assert!(
        of_task.shows("Waits for") && of_task.shows(&format!("/console/tasks/{wood}")),
        "{}",
        of_task.body
    );
    for answer in [projects, board, graph, of_task] {
        assert!(!answer.shows("<script>alert"), "{}", answer.body);
    }
}

/// At most 60 tasks are drawn; the list has all.
#[tokio::test]
async fn dependency_graph_is_bounded() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    world.task_with(json!({ "name": "first", "user_id": "ada" })).await;
    for number in 0..70 {
        let task = json!({ "name": format!("t-{number}"), "user_id": "ada", "depends_on": ["first"] });
        world.task_with(task).await;
    }
    let graph = admin.get("/console/tasks?view=graph&user_id=ada").await;
    assert_eq!(graph.body.matches("<a class=\"node ").count(), 60, "{}", graph.body);
    assert!(graph.shows("11 more are in the list") && graph.shows(">t-69<"), "{}", graph.body);
    let board = admin.get("/console/tasks?view=board").await;
    assert!(board.shows("<small>20+</small>") && board.shows("All of them"), "{}", board.body);
}
