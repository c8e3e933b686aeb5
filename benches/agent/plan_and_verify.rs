//! Groups `plan` and `verify`.

use serde_json::json;
use subjects::{FindingsStatus, Plan, Work};
use testkit::{Script, chat, handoff};

use super::{
    cases::{After, Case, Group, Names, Prepared, check},
    stage::{ANALYSTS_USER, Stage},
};

pub(crate) fn plan() -> Vec<Case> {
    let case = |id, for_tuning, prepare| Case { id, group: Group::Plan, for_tuning, prepare };
    vec![
        case("plan-launch", true, |_, names| Box::pin(plan_launch(names))),
        case("plan-with-criterion", false, |_, names| Box::pin(plan_with_criterion(names))),
        case("add-dependency", true, |stage, names| Box::pin(add_dependency(stage, names))),
        case("create-dependent", false, |stage, names| Box::pin(create_dependent(stage, names))),
    ]
}

fn has_plan(after: &After) -> Result<(), String> {
    after.completed()?;
    check(after.tasks.len() > 1, || format!("{} tasks", after.tasks.len()))?;
    check(after.dependencies > 0, || "no task waits for another".to_owned())
}

fn planning(goal: String, acceptance_criteria: Vec<String>) -> subjects::Handoff {
    handoff(Work::Plan(Plan { goal, acceptance_criteria, constraints: Vec::new(), task_id: None }))
}

async fn plan_launch(names: Names) -> Prepared {
    let goal = format!(
        "Send a {} to all customers. First the text is written, then it is checked, then it is sent.",
        names.topic
    );
    Prepared {
        handoff: planning(goal, Vec::new()),
        verifies: None,
        ideal: Vec::new(),
        grade: Box::new(has_plan),
    }
}

async fn plan_with_criterion(names: Names) -> Prepared {
    let goal = format!("Publish the {}: build the page, review it, and put it online.", names.topic);
    let criteria = vec!["The page is online.".to_owned()];
    Prepared {
        handoff: planning(goal, criteria),
        verifies: None,
        ideal: Vec::new(),
        grade: Box::new(has_plan),
    }
}

fn waits(after: &After) -> Result<(), String> {
    after.completed()?;
    check(after.tasks.len() == 2, || format!("{} tasks", after.tasks.len()))?;
    check(after.dependencies == 1, || format!("{} dependencies", after.dependencies))
}

async fn add_dependency(stage: &Stage, names: Names) -> Prepared {
    stage.task(json!({ "name": names.first })).await;
    let second = stage.task(json!({ "name": names.second })).await;
    let arguments = json!({ "task_id": second, "depends_on": names.first });
    Prepared {
        handoff: chat(&format!("{} must wait for {}: add that dependency.", names.second, names.first)),
        verifies: None,
        ideal: vec![Script::call("db__task__dependency__add", &arguments), Script::say("It waits.")],
        grade: Box::new(waits),
    }
}

async fn create_dependent(stage: &Stage, names: Names) -> Prepared {
    stage.task(json!({ "name": names.first })).await;
    let arguments = json!({ "name": names.third, "depends_on": [names.first] });
    let asked = format!("Create a task {} that depends on {}.", names.third, names.first);
    Prepared {
        handoff: chat(&asked),
        verifies: None,
        ideal: vec![Script::call("db__task__create", &arguments), Script::say("It is there.")],
        grade: Box::new(move |after| {
            after.task(names.third)?;
            waits(after)
        }),
    }
}

pub(crate) fn verify() -> Vec<Case> {
    let case = |id, for_tuning, prepare| Case { id, group: Group::Verify, for_tuning, prepare };
    vec![
        case("verify-by-name", true, |stage, names| Box::pin(verify_by_name(stage, names))),
        case("verify-by-id", false, |stage, names| Box::pin(verify_by_id(stage, names))),
        case("verify-one-of-two", true, |stage, names| Box::pin(verify_one_of_two(stage, names))),
        case("report-unmet", false, |stage, names| Box::pin(report_unmet(stage, names))),
    ]
}

async fn finished_task(stage: &Stage, names: Names, name: &str) -> String {
    let description = format!("Result: the {} was published on Monday.", names.topic);
    let criteria = [format!("The description says that the {} was published.", names.topic)];
    stage
        .task(json!({ "name": name, "description": description, "acceptance_criteria": criteria,
        "user_id": ANALYSTS_USER }))
        .await
}

fn verifying(id: &str) -> Script {
    Script::call("request_verification", &json!({ "task_id": id }))
}

/// An analyst judged the one task that was asked for.
fn was_verified(after: &After, id: &str) -> Result<(), String> {
    after.completed()?;
    let [verified] = after.answer.verifications.as_slice() else {
        return Err(format!("{} verifications", after.answer.verifications.len()));
    };
    check(verified.task_id.to_string() == id, || format!("verified {}", verified.task_id))?;
    check(verified.status.is_some(), || format!("no findings: {:?}", verified.error))
}

async fn verify_by_name(stage: &Stage, names: Names) -> Prepared {
    let id = finished_task(stage, names, names.first).await;
    Prepared {
        handoff: chat(&format!("Have {} verified and tell me the result.", names.first)),
        verifies: Some(id.clone()),
        ideal: vec![verifying(&id), Script::say("The criterion is met.")],
        grade: Box::new(move |after| was_verified(after, &id)),
    }
}

async fn verify_by_id(stage: &Stage, names: Names) -> Prepared {
    let id = finished_task(stage, names, names.second).await;
    Prepared {
        handoff: chat(&format!("Request verification of the task {id}.")),
        verifies: Some(id.clone()),
        ideal: vec![verifying(&id), Script::say("The criterion is met.")],
        grade: Box::new(move |after| was_verified(after, &id)),
    }
}

async fn verify_one_of_two(stage: &Stage, names: Names) -> Prepared {
    finished_task(stage, names, names.second).await;
    let id = finished_task(stage, names, names.third).await;
    Prepared {
        handoff: chat(&format!("An analyst should verify the task {}.", names.third)),
        verifies: Some(id.clone()),
        ideal: vec![verifying(&id), Script::say("The criterion is met.")],
        grade: Box::new(move |after| was_verified(after, &id)),
    }
}

async fn report_unmet(stage: &Stage, names: Names) -> Prepared {
    let criteria = [format!("The description contains a link to the {}.", names.topic)];
    let task = json!({ "name": names.first, "description": "Not begun.", "acceptance_criteria": criteria,
        "user_id": ANALYSTS_USER });
    let id = stage.task(task).await;
    Prepared {
        handoff: chat(&format!("Verify {} and say whether its criterion is met.", names.first)),
        verifies: Some(id.clone()),
        ideal: vec![verifying(&id), Script::say("An analyst judged it; see the findings.")],
        grade: Box::new(move |after| {
            was_verified(after, &id)?;
            let passed = after.answer.verifications.iter().any(|it| it.status == Some(FindingsStatus::Pass));
            // The scripted analyst finds everything met; what the answer says must fit the findings.
            let says_met = after.text().contains("is met") && !after.text().contains("not met");
            check(passed || !says_met, || format!("the findings say otherwise: {}", after.text()))
        }),
    }
}
