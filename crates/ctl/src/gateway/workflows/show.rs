//! `cynodectl workflows show`: a workflow as it is.

use api::{WorkflowDetails, WorkflowEffect};
use contract::workflow::{Node, StepProgress, WaitingFor};

use super::{
    super::{print_field, print_fields, print_json},
    commands,
};
use crate::print;

/// How many of the last events are printed.
const MAX_EVENTS: usize = 10;

pub(super) fn run(details: &WorkflowDetails, json: bool) {
    if json {
        print_json(details);
        return;
    }
    let workflow = &details.workflow;
    print_fields!(workflow, task_id, task_name, task_title);
    print_progress(details);
    print_fields!(workflow, run, holder);
    print_field("held until", &workflow.lease_expires_at);
    print_fields!(workflow, project_id, user_id, started_by, created_at, updated_at, ended_at);
    if let Some(cost) = details.cost_usd() {
        print_field("cost", &format!("${cost:.4}"));
    }
    print_fields!(workflow, error, summary);
    print_steps(details);
    let told: Vec<_> = details.events.iter().filter(|event| !event.is_routing()).collect();
    if !told.is_empty() {
        print::line("");
        let from = told.len().saturating_sub(MAX_EVENTS);
        for event in &told[from..] {
            print::line(&super::follow::line(event));
        }
    }
}

/// Prints where a workflow is and what it asks, for the workflow and for its task.
pub(in super::super) fn print_progress(details: &WorkflowDetails) {
    let workflow = &details.workflow;
    print_field("workflow", &workflow.status);
    let waiting = workflow.waiting_because.as_deref().map(commands);
    print_field("why", &waiting);
    print_field("at", &details.present_node().map(Node::as_str));
    let steps = details.open_steps();
    if !steps.is_empty() {
        print_field(if steps.len() == 1 { "step" } else { "steps" }, &steps.join(", "));
    }
    if let Some(question) = &workflow.question {
        print_field("question", question);
        let example = match workflow.waiting_for {
            Some(WaitingFor::Approval) => "yes",
            _ => "YOUR ANSWER",
        };
        let mut answer = format!("cynodectl workflows resume {} \"{example}\"", workflow.task_name);
        if let Some(id) = &workflow.question_id {
            answer.push_str(&format!(" --question {id}"));
        }
        print_field("answer with", &answer);
    }
}

fn print_steps(details: &WorkflowDetails) {
    let steps = details.steps();
    if steps.is_empty() {
        return;
    }
    print::line("");
    let row = |step: &StepProgress| {
        let of_step = |effect: &&WorkflowEffect| {
            effect.step.as_deref() == Some(&*step.name) && effect.kind.as_str() == "job"
        };
        let jobs: Vec<&str> = details.effects.iter().filter(of_step).map(|effect| &*effect.id).collect();
        let review = step.review.as_ref().map_or("-", |review| review.decision.as_str());
        let waits_for = if step.depends_on.is_empty() { "-".to_owned() } else { step.depends_on.join(", ") };
        let tried = format!("{} of {}", step.attempts, details.workflow.policy.max_attempts);
        let jobs = if jobs.is_empty() { "-".to_owned() } else { jobs.join(", ") };
        let cells = [&*step.name, step.status.as_str(), &tried, review, &waits_for, &jobs];
        cells.map(|cell| print::sanitize(cell).replace('\n', " ")).into()
    };
    print::table(&["STEP", "STATUS", "TRIED", "REVIEW", "AFTER", "JOBS"], steps.iter().map(row).collect());
}
