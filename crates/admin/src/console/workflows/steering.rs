//! The forms by which people steer a workflow: answer, pause, resume, cancel, retry, start.

use std::sync::Arc;

use api::{ResumeWorkflow, StartWorkflow, Task, Workflow, WorkflowStatus};
use axum::{extract::State, response::Response};
use contract::workflow::WaitingFor;
use maud::{Markup, html};

use super::{
    super::{
        Console, Failure,
        components::{button, confirm, form, visible_lines},
        flash,
        form::PostedForm,
        page::Section,
        session::Session,
        tasks,
    },
    page_of,
};
use crate::{Error, operations::Steering};

const START: &str = "/console/workflows/start";
const ANSWER: &str = "/console/workflows/resume";
const PAUSE: &str = "/console/workflows/pause";
const CANCEL: &str = "/console/workflows/cancel";
const RETRY: &str = "/console/workflows/retry";

/// The end of a question that a runner asks about a step, and the answers that it then understands.
const TAKES_DECISION: &str = "Answer retry, accept or stop, or say what should be done.";
const DECISIONS: [(&str, &str, &str); 3] =
    [("retry", "small", "Retry"), ("accept", "quiet small", "Accept"), ("stop", "danger small", "Stop")];

fn takes_decision(question: &str) -> bool {
    question.trim_end().ends_with(TAKES_DECISION)
}

/// Renders the open question, and the buttons for what can be done with the workflow now.
pub(in super::super) fn panel(session: &Session, workflow: &Workflow) -> Markup {
    let id = [("id", workflow.task_id.as_str())];
    let is_paused = workflow.waiting_for == Some(WaitingFor::Pause);
    html! {
        @if workflow.status == WorkflowStatus::Waiting && !is_paused { (question(session, workflow)) }
        div .actions .steer {
            @match workflow.status {
                WorkflowStatus::Queued | WorkflowStatus::Running => {
                    (button(session, PAUSE, &id, "quiet small", "Pause"))
                    (cancel_button(session, workflow))
                }
                WorkflowStatus::Waiting => {
                    @if is_paused { (button(session, ANSWER, &id, "small", "Resume")) }
                    (cancel_button(session, workflow))
                }
                WorkflowStatus::Failed | WorkflowStatus::Cancelled => {
                    (button(session, RETRY, &id, "small", "Retry the failed step"))
                    (confirm(
                        "Retry from the start",
                        &html! { "All steps are planned and done again, also those that are done." },
                        &button(
                            session,
                            RETRY,
                            &[id[0], ("from_start", "on")],
                            "danger small",
                            "Begin anew",
                        ),
                    ))
                }
                WorkflowStatus::Done => {}
            }
        }
    }
}

fn cancel_button(session: &Session, workflow: &Workflow) -> Markup {
    confirm(
        "Cancel",
        &html! { "Its jobs and handoffs end, and the task and whatever depends on it are cancelled." },
        &button(session, CANCEL, &[("id", &workflow.task_id)], "danger small", "Cancel this workflow"),
    )
}

/// Renders the question with a form for the answer. Approval can be given with one button.
fn question(session: &Session, workflow: &Workflow) -> Markup {
    let asked = workflow.question_id.as_deref().unwrap_or_default();
    let [id, asked] = [("id", workflow.task_id.as_str()), ("question_id", asked)];
    let is_approval = workflow.waiting_for == Some(WaitingFor::Approval);
    let inner = html! {
        div .field {
            label for="input" { @if is_approval { "Or say what to change first" } @else { "Your answer" } }
            textarea #input name="input" rows="3" required maxlength="16384" {}
        }
        button .button .quiet[is_approval] type="submit" {
            @if is_approval { "Send this" } @else { "Send the answer" }
        }
    };
    html! {
        section .attention aria-labelledby="asked" {
            h2 #asked { @if is_approval { "Needs your approval" } @else { "Asks you" } }
            @if let Some(question) = &workflow.question { p .described { (visible_lines(question)) } }
            @if is_approval {
                div .actions {
                    (button(session, ANSWER, &[id, asked, ("input", "yes")], "small", "Approve"))
                    (button(session, ANSWER, &[id, asked, ("input", "no")], "danger small", "Refuse"))
                }
            }
            @if !is_approval && workflow.question.as_deref().is_some_and(takes_decision) {
                div .actions {
                    @for (input, class, text) in DECISIONS {
                        (button(session, ANSWER, &[id, asked, ("input", input)], class, text))
                    }
                }
            }
            (form(session, ANSWER, &[id, asked], &inner))
        }
    }
}

/// Renders the button that starts the workflow of a task, with a field for its user if the task has none.
pub(in super::super) fn start_form(session: &Session, task: &Task) -> Markup {
    let inner = html! {
        @if task.user_id.is_none() {
            div .field {
                label for="user_id" { "User on whose behalf the workflow acts" }
                input #user_id name="user_id" required maxlength="128" autocomplete="off";
            }
        }
        button .button .small type="submit" { "Start its workflow" }
    };
    html! { div .actions .after { (form(session, START, &[("id", &task.task_id)], &inner)) } }
}

/// Does what a form wants, and goes back to the workflow.
async fn steer(
    console: &Console,
    posted: &PostedForm,
    steering: Steering,
    said: impl FnOnce(&Workflow) -> String,
) -> Result<Response, Failure> {
    let id = posted.fields.text("id");
    let starts = matches!(steering, Steering::Start(_));
    let steered = console.admin.steer_workflow(&posted.session.actor, id, steering).await;
    let back = match &steered {
        Ok(workflow) => page_of(&workflow.task_id),
        Err(Error::NotFound { .. }) => Section::Workflows.address().to_owned(),
        // Without a workflow there is only the task to go back to.
        Err(_) if starts => tasks::page_of(id),
        Err(_) => page_of(id),
    };
    flash::redirect_after(console, &back, steered, |workflow| said(&workflow))
}

pub(in super::super) async fn start(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let user_id = posted.fields.owned("user_id");
    let started = Steering::Start(StartWorkflow { user_id, ..StartWorkflow::default() });
    steer(&console, &posted, started, |workflow| {
        let what = if workflow.already_active { "is active already" } else { "is started" };
        format!("The workflow {what}.")
    })
    .await
}

pub(in super::super) async fn answer(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let input = posted.fields.owned("input");
    let said = if input.is_some() { "Answered; the workflow continues." } else { "The workflow continues." };
    let question_id = posted.fields.owned("question_id");
    let answer = Steering::Resume(ResumeWorkflow { input, question_id });
    steer(&console, &posted, answer, |_| said.to_owned()).await
}

pub(in super::super) async fn pause(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    steer(&console, &posted, Steering::Pause, |_| {
        "Paused. Jobs and handoffs that it began continue; their results are read on resume.".to_owned()
    })
    .await
}

pub(in super::super) async fn cancel(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let reason = posted.fields.owned("reason");
    steer(&console, &posted, Steering::Cancel { reason }, |workflow| {
        match workflow.canceled_with.as_slice() {
            [] => "The workflow is cancelled.".to_owned(),
            others => format!("The workflow is cancelled, and with it these tasks: {}.", others.join(", ")),
        }
    })
    .await
}

pub(in super::super) async fn retry(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let from_start = posted.fields.is_on("from_start");
    let said = if from_start { "The workflow starts over." } else { "The workflow is retried." };
    steer(&console, &posted, Steering::Retry { from_start }, |_| said.to_owned()).await
}
