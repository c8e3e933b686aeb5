//! Groups `create` and `read`.

use serde_json::json;
use testkit::{Script, chat};

use super::{
    cases::{After, Case, Group, Names, Prepared, check},
    stage::Stage,
};

pub(crate) fn create() -> Vec<Case> {
    let case = |id, for_tuning, prepare| Case { id, group: Group::Create, for_tuning, prepare };
    vec![
        case("one-task", true, |_, names| Box::pin(one_task(names))),
        case("with-description", false, |_, names| Box::pin(with_description(names))),
        case("two-tasks", true, |_, names| Box::pin(two_tasks(names))),
        case("with-criterion", false, |_, names| Box::pin(with_criterion(names))),
    ]
}

fn made(name: &str, more: &serde_json::Value) -> Script {
    let mut task = json!({ "name": name });
    for (key, value) in more.as_object().into_iter().flatten() {
        task[key] = value.clone();
    }
    Script::call("db__task__create", &task)
}

async fn one_task(names: Names) -> Prepared {
    let name = names.first;
    Prepared {
        handoff: chat(&format!("Create a task called {name}.")),
        verifies: None,
        ideal: vec![made(name, &json!({})), Script::say(&format!("`{name}` was created."))],
        grade: Box::new(move |after| {
            after.completed()?;
            after.task(name)?;
            check(after.tasks.len() == 1, || format!("{} tasks", after.tasks.len()))
        }),
    }
}

async fn with_description(names: Names) -> Prepared {
    let (name, topic) = (names.second, names.topic);
    let description = format!("Before Friday, with the {topic}.");
    let asked = format!("Please add a task {name}. Its description is: {description}");
    Prepared {
        handoff: chat(&asked),
        verifies: None,
        ideal: vec![made(name, &json!({ "description": description })), Script::say("It is there.")],
        grade: Box::new(move |after| {
            after.completed()?;
            let task = after.task(name)?;
            let text = task["description"].as_str().unwrap_or_default().to_lowercase();
            check(text.contains("friday") && text.contains(topic), || format!("description: {text}"))?;
            check(after.tasks.len() == 1, || format!("{} tasks", after.tasks.len()))
        }),
    }
}

async fn two_tasks(names: Names) -> Prepared {
    let (first, second) = (names.first, names.second);
    Prepared {
        handoff: chat(&format!("Create two tasks: {first} and {second}.")),
        verifies: None,
        ideal: vec![made(first, &json!({})), made(second, &json!({})), Script::say("Both are there.")],
        grade: Box::new(move |after| {
            after.completed()?;
            after.task(first)?;
            after.task(second)?;
            check(after.tasks.len() == 2, || format!("{} tasks", after.tasks.len()))
        }),
    }
}

async fn with_criterion(names: Names) -> Prepared {
    let (name, topic) = (names.third, names.topic);
    let asked = format!("Create the task {name} with one acceptance criterion: the {topic} is signed.");
    let criteria = json!({ "acceptance_criteria": [format!("The {topic} is signed.")] });
    Prepared {
        handoff: chat(&asked),
        verifies: None,
        ideal: vec![made(name, &criteria), Script::say("It is there.")],
        grade: Box::new(move |after| {
            after.completed()?;
            let criteria = &after.task(name)?["acceptance_criteria"];
            let holds = criteria.to_string().to_lowercase().contains(topic);
            check(holds, || format!("acceptance criteria: {criteria}"))
        }),
    }
}

pub(crate) fn read() -> Vec<Case> {
    let case = |id, for_tuning, prepare| Case { id, group: Group::Read, for_tuning, prepare };
    vec![
        case("list", true, |stage, names| Box::pin(list(stage, names))),
        case("status", false, |stage, names| Box::pin(status(stage, names))),
        case("which-completed", true, |stage, names| Box::pin(which_completed(stage, names))),
        case("criteria", false, |stage, names| Box::pin(criteria(stage, names))),
    ]
}

fn says(after: &After, words: &[&str]) -> Result<(), String> {
    after.completed()?;
    check(after.is_unchanged, || "something was changed".to_owned())?;
    let text = after.text();
    let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
    check(missing.is_empty(), || format!("the answer lacks {missing:?}: {text}"))
}

fn listing() -> Script {
    Script::call("db__task__list", &json!({}))
}

async fn list(stage: &Stage, names: Names) -> Prepared {
    for name in [names.first, names.second] {
        stage.task(json!({ "name": name })).await;
    }
    Prepared {
        handoff: chat("Which tasks are there?"),
        verifies: None,
        ideal: vec![listing(), Script::say(&format!("`{}` and `{}`.", names.first, names.second))],
        grade: Box::new(move |after| says(after, &[names.first, names.second])),
    }
}

async fn status(stage: &Stage, names: Names) -> Prepared {
    stage.task(json!({ "name": names.first })).await;
    let id = stage.task(json!({ "name": names.second })).await;
    stage.call("db.task.update_status", json!({ "task_id": id, "status": "blocked" })).await;
    Prepared {
        handoff: chat(&format!("What is the status of {}?", names.second)),
        verifies: None,
        ideal: vec![listing(), Script::say("It is blocked.")],
        grade: Box::new(|after| says(after, &["blocked"])),
    }
}

async fn which_completed(stage: &Stage, names: Names) -> Prepared {
    for name in [names.first, names.second] {
        stage.task(json!({ "name": name })).await;
    }
    let id = stage.task(json!({ "name": names.third })).await;
    for status in ["running", "completed"] {
        stage.call("db.task.update_status", json!({ "task_id": id, "status": status })).await;
    }
    Prepared {
        handoff: chat("Which of the tasks is already completed?"),
        verifies: None,
        ideal: vec![listing(), Script::say(&format!("Only `{}`.", names.third))],
        grade: Box::new(move |after| {
            says(after, &[names.third])?;
            check(!after.text().contains(names.first), || "it names one that is not".to_owned())
        }),
    }
}

async fn criteria(stage: &Stage, names: Names) -> Prepared {
    let criterion = format!("The {} was sent to all.", names.topic);
    stage.task(json!({ "name": names.first, "acceptance_criteria": [criterion] })).await;
    Prepared {
        handoff: chat(&format!("What are the acceptance criteria of {}?", names.first)),
        verifies: None,
        ideal: vec![
            Script::call("db__task__get", &json!({ "task_id": names.first })),
            Script::say(&format!("One: {criterion}")),
        ],
        grade: Box::new(move |after| says(after, &[names.topic, "sent"])),
    }
}
