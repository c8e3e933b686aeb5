//! Group `update`.

use serde_json::json;
use testkit::{Script, chat};

use super::{
    cases::{After, Case, Group, Names, Prepared, check},
    stage::Stage,
};

pub(crate) fn all() -> Vec<Case> {
    let case = |id, for_tuning, prepare| Case { id, group: Group::Update, for_tuning, prepare };
    vec![
        case("start", true, |stage, names| Box::pin(start(stage, names))),
        case("cancel", false, |stage, names| Box::pin(cancel(stage, names))),
        case("describe", true, |stage, names| Box::pin(describe(stage, names))),
        case("retitle", false, |stage, names| Box::pin(retitle(stage, names))),
    ]
}

async fn two_tasks(stage: &Stage, names: Names) -> String {
    stage.task(json!({ "name": names.second, "description": "As it is." })).await;
    stage.task(json!({ "name": names.first, "description": "As it was." })).await
}

/// The second task must stay as it is.
fn only_first_changed(after: &After, names: Names) -> Result<(), String> {
    after.completed()?;
    check(after.tasks.len() == 2, || format!("{} tasks", after.tasks.len()))?;
    let other = after.task(names.second)?;
    check(other["version"] == 1 && other["status"] == "pending", || format!("also changed: {other}"))
}

fn status(id: &str, status: &str) -> Script {
    Script::call("db__task__update_status", &json!({ "task_id": id, "status": status }))
}

fn is_now(after: &After, names: Names, status: &str) -> Result<(), String> {
    let now = &after.task(names.first)?["status"];
    check(now == status, || format!("status {now}"))?;
    only_first_changed(after, names)
}

async fn start(stage: &Stage, names: Names) -> Prepared {
    let id = two_tasks(stage, names).await;
    Prepared {
        handoff: chat(&format!("Set the status of {} to running.", names.first)),
        verifies: None,
        ideal: vec![status(&id, "running"), Script::say("It is running.")],
        grade: Box::new(move |after| is_now(after, names, "running")),
    }
}

async fn cancel(stage: &Stage, names: Names) -> Prepared {
    let id = two_tasks(stage, names).await;
    Prepared {
        handoff: chat(&format!("We no longer need {}: please cancel it.", names.first)),
        verifies: None,
        ideal: vec![status(&id, "canceled"), Script::say("It is canceled.")],
        grade: Box::new(move |after| is_now(after, names, "canceled")),
    }
}

async fn describe(stage: &Stage, names: Names) -> Prepared {
    let id = two_tasks(stage, names).await;
    let asked = format!("Change the description of {} to: Ask Kim about the {}.", names.first, names.topic);
    let arguments = json!({ "task_id": id, "description": format!("Ask Kim about the {}.", names.topic) });
    Prepared {
        handoff: chat(&asked),
        verifies: None,
        ideal: vec![Script::call("db__task__update", &arguments), Script::say("Changed.")],
        grade: Box::new(move |after| {
            let text = after.task(names.first)?["description"].to_string().to_lowercase();
            check(text.contains("kim") && text.contains(names.topic), || format!("description {text}"))?;
            only_first_changed(after, names)
        }),
    }
}

async fn retitle(stage: &Stage, names: Names) -> Prepared {
    let id = two_tasks(stage, names).await;
    let title = format!("The {} of May", names.topic);
    let arguments = json!({ "task_id": id, "title": title });
    Prepared {
        handoff: chat(&format!("Give {} the title \"{title}\".", names.first)),
        verifies: None,
        ideal: vec![Script::call("db__task__update", &arguments), Script::say("Changed.")],
        grade: Box::new(move |after| {
            let now = after.task(names.first)?["title"].as_str().unwrap_or_default().to_owned();
            check(now == title, || format!("title {now}"))?;
            only_first_changed(after, names)
        }),
    }
}
