//! `workflow.cancel`, `pause`, `resume` and `retry`. None needs the runner: each raises the epoch, so that
//! the runner is refused at its next call.

use contract::{
    task::Status as TaskStatus,
    workflow::{Cancel, Outcome, Pause, Resume, Retry, Status, Trigger, WaitingFor, Workflow},
};
use policy::{Scope, ScopedId};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use serde_json::Value;
use store::{
    Store,
    entity::{task, workflow, workflow_effect, workflow_event},
};

use super::{WorkflowBook, checkpoint, effects, events, message, requeue, rows, view};
use crate::{
    BuiltInTool, Context, Does, LeaseIssuer, Sandboxes, ToolError,
    arguments::check,
    task_rows::{
        self, Locked,
        graph::{self, Direction},
    },
};

const MAX_REASON_BYTES: usize = 1_000;
const MAX_INPUT_BYTES: usize = 16 * 1024;

/// Tools that change a workflow wake the calls of its runner once the change is committed.
macro_rules! steering {
    (
        $input:ident: $title:literal, $description:literal,
        |$context:ident, $wanted:ident, $task:ident| $run:expr
    ) => {
        impl BuiltInTool for $input {
            const TITLE: &'static str = $title;
            const DESCRIPTION: &'static str = $description;
            const DOES: Does = Does::Write;
            const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
            const SCOPE: Scope = Scope::Pm;
            const NEEDS_NATS: bool = true;
            const MAX_RESULT_BYTES: usize = view::MAX_RESULT_BYTES;
            const WAITS: bool = true;

            async fn run($context: &Context<'_>, $wanted: Self) -> Result<Workflow, ToolError> {
                let $task = task_rows::find($context, &$wanted.task_id).await?.id;
                check_not_own($context, &[$task.as_str()]).await?;
                $run.await
            }

            async fn complete(
                _: &Store,
                sandboxes: &Sandboxes,
                _: &LeaseIssuer,
                _: Self,
                output: Value,
            ) -> Result<Value, ToolError> {
                sandboxes.wake_waiting();
                Ok(output)
            }
        }
    };
}

steering!(Cancel: "Cancel a workflow",
    "Ends the workflow of a task at once, with its jobs and handoffs, and cancels the task and whatever \
     depends on it (`canceled_with`). workflow.retry takes it up again; so it does those of the others that \
     have a workflow, and workflow.start those that have none.",
    |context, wanted, task| cancel(context, &task, wanted.reason.as_deref()));

steering!(Pause: "Pause a workflow",
    "Takes the workflow of a task from its runner until workflow.resume. Jobs and handoffs that it began go \
     on, and it finds their results later.",
    |context, wanted, task| WorkflowBook::of(context).pause(&task));

steering!(Resume: "Resume a workflow",
    "Resumes a workflow that was paused, or that waits for a person: `input` is the answer to its \
     `question`, or yes or no where approval is asked for. An approval names the `question_id` of the \
     question that the person was shown.",
    |context, wanted, task| WorkflowBook::of(context).resume(&task, &Answer::of(&wanted)));

steering!(Retry: "Retry a workflow",
    "Retries a workflow that failed or was cancelled, from the step that failed, or from the start \
     with `from_start`. Its task is no longer failed or canceled.",
    |context, wanted, task| WorkflowBook::of(context).retry(&task, wanted.from_start));

impl WorkflowBook<'_> {
    /// Ends a workflow with its jobs and handoffs, and cancels its task with whatever depends on it.
    pub async fn cancel(&self, task_id: &str, reason: Option<&str>) -> Result<Workflow, ToolError> {
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        check::text("reason", reason.unwrap_or_default(), MAX_REASON_BYTES)?;
        let Locked { task, mut others } = task_rows::lock_with_all_dependents(self.db, task_id).await?;
        let row = rows::lock(self.db, task_id).await?;
        match rows::status_of(&row)? {
            Status::Cancelled => return view::describe(self.db, row).await,
            status @ (Status::Done | Status::Failed) => return Err(unfit(&task, status, "be cancelled")),
            Status::Queued | Status::Running | Status::Waiting => {}
        }
        let id = task.id.clone();
        others.push(task);
        let canceled = task_rows::cancel(self.db, others, self.within.as_ref(), self.now).await?;
        let others = canceled.iter().filter(|other| other.id != id);
        let canceled_with: Vec<String> = others.map(|other| other.name.clone()).collect();
        let (mut ids, own): (Vec<String>, Vec<String>) =
            canceled.into_iter().map(|task| task.id).partition(|other| *other != id);
        self.cancel_active(own.into_iter().chain([id.clone()]).collect(), reason).await?;
        ids.sort_unstable();
        self.cancel_active(ids, Some("a task that this one depends on was cancelled")).await?;
        let workflow = view::describe(self.db, rows::find(self.db, task_id).await?).await?;
        Ok(Workflow { canceled_with, ..workflow })
    }

    /// Takes a workflow from its runner until it is resumed. What it began goes on.
    pub async fn pause(&self, task_id: &str) -> Result<Workflow, ToolError> {
        let task = self.lock_task(task_id).await?;
        let row = rows::lock(self.db, task_id).await?;
        let status = rows::status_of(&row)?;
        match (status, view::waiting_for(&row)?) {
            (Status::Queued | Status::Running, _) => {}
            (Status::Waiting, Some(WaitingFor::Pause)) => return view::describe(self.db, row).await,
            _ => return Err(unfit(&task, status, "be paused")),
        }
        let epoch = row.epoch + 1;
        let mut change = workflow::ActiveModel::from(row);
        change.status = Set(Status::Waiting.as_str().to_owned());
        change.waiting_for = Set(Some(WaitingFor::Pause.as_str().to_owned()));
        change.epoch = Set(epoch);
        change.holder = Set(None);
        change.lease_expires_at = Set(None);
        change.updated_at = Set(self.now);
        let row = change.update(self.db).await?;
        self.note(&row, Outcome::Paused).await?;
        view::describe(self.db, row).await
    }

    /// Goes on with a workflow that waits for a person.
    pub async fn resume(&self, task_id: &str, answer: &Answer<'_>) -> Result<Workflow, ToolError> {
        let direction = Direction::Dependencies;
        let Locked { task, others } = task_rows::lock_with_neighbours(self.db, task_id, direction).await?;
        let row = rows::lock(self.db, task_id).await?;
        let status = rows::status_of(&row)?;
        let waiting_for = view::waiting_for(&row)?;
        let Some(waiting_for) = waiting_for.filter(|_| status == Status::Waiting) else {
            let answered =
                if answer.input.is_some() { self.answered_by(task_id, status).await? } else { None };
            return Err(answered.map_or_else(
                || not_waiting(&task, status),
                |by| {
                    let (name, status) = (&task.name, status.as_str());
                    ToolError::Conflict(format!(
                        "the workflow of the task {name} is {status} and asks nothing: its last question was \
                         answered already, {by}"
                    ))
                },
            ));
        };
        let is_other = answer.question_id.is_some_and(|id| row.interrupt_id.as_deref() != Some(id));
        if is_other {
            let asked = row.question.as_deref().unwrap_or("nothing");
            let why = format!("this answers another question than the one that is open now: {asked}");
            return Err(ToolError::Conflict(why));
        }
        let input = check_input(waiting_for, answer.input)?;
        if waiting_for == WaitingFor::Approval && answer.question_id.is_none() {
            return Err(unnamed(&row));
        }
        let (is_answer, run) = (input.is_some(), row.run + 1);
        // A pause does not retry what failed again since the retry.
        let trigger = match waiting_for {
            WaitingFor::Pause => requeue::trigger_after(self.db, &row).await?,
            WaitingFor::Question | WaitingFor::Approval => Trigger::Resume,
        };
        let mut change = workflow::ActiveModel::from(row);
        change.status = Set(Status::Queued.as_str().to_owned());
        change.waiting_for = Set(None);
        change.question = Set(None);
        if is_answer {
            change.input = Set(input);
        }
        change.updated_at = Set(self.now);
        if task.status == TaskStatus::Blocked.as_str() {
            self.set_task(task, TaskStatus::Ready).await?;
        }
        let row = message::queue(self.db, self.sandboxes, change, (task_id, run), trigger, &others).await?;
        self.note(&row, if is_answer { Outcome::Answered } else { Outcome::Resumed }).await?;
        view::describe(self.db, row).await
    }

    /// Returns who answered the last question of a workflow that goes on, as its event says it.
    async fn answered_by(&self, task_id: &str, status: Status) -> Result<Option<String>, ToolError> {
        if !matches!(status, Status::Queued | Status::Running) {
            return Ok(None);
        }
        // The runner tells of the answer as well, without who gave it.
        let answered = workflow_event::Entity::find()
            .filter(workflow_event::Column::TaskId.eq(task_id))
            .filter(workflow_event::Column::Node.eq(events::WORKFLOW))
            .filter(workflow_event::Column::Outcome.eq(Outcome::Answered.as_str()))
            .order_by_desc(workflow_event::Column::Id);
        Ok(answered.one(self.db).await?.and_then(|event| event.detail))
    }

    /// Goes on with a workflow that failed or was cancelled. Besides the start of a cancelled task's first
    /// workflow, the only way in which a task whose status is final gets another one.
    pub async fn retry(&self, task_id: &str, from_start: bool) -> Result<Workflow, ToolError> {
        let direction = Direction::Dependencies;
        let Locked { task, others } = task_rows::lock_with_neighbours(self.db, task_id, direction).await?;
        let row = rows::lock(self.db, task_id).await?;
        let status = rows::status_of(&row)?;
        if !matches!(status, Status::Failed | Status::Cancelled) {
            return Err(unfit(&task, status, "be retried"));
        }
        let (run, epoch, restarts) = (row.run + 1, row.epoch + 1, row.restarts + 1);
        let mut change = workflow::ActiveModel::from(row);
        if from_start {
            checkpoint::forget(self.db, task_id).await?;
            effects::set_aside(self.db, task_id, restarts).await?;
            change.restarts = Set(restarts);
        }
        change.status = Set(Status::Queued.as_str().to_owned());
        change.epoch = Set(epoch);
        change.error = Set(None);
        change.input = Set(None);
        change.interrupt_id = Set(None);
        change.ended_at = Set(None);
        change.updated_at = Set(self.now);
        let is_ready = view::is_ready(&others);
        let task_status = if is_ready { TaskStatus::Running } else { TaskStatus::Pending };
        task_rows::set_status(self.db, task, task_status, self.now).await?;
        let row =
            message::queue(self.db, self.sandboxes, change, (task_id, run), Trigger::Retry, &others).await?;
        self.note(&row, Outcome::Retried).await?;
        view::describe(self.db, row).await
    }

    /// Locks the task of a workflow.
    pub(super) async fn lock_task(&self, task_id: &str) -> Result<task::Model, ToolError> {
        let found = task::Entity::find_by_id(task_id).lock_exclusive().one(self.db).await?;
        found.ok_or_else(|| ToolError::not_found("task", task_id))
    }

    async fn note(&self, row: &workflow::Model, outcome: Outcome) -> Result<(), ToolError> {
        let event = events::of(events::WORKFLOW, outcome, Some(format!("by {}", self.by)));
        events::add(self.db, (&row.task_id, row.epoch), [event], self.now).await
    }
}

/// A person's answer to a workflow that waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    pub input: Option<&'a str>,
    /// The question that is answered, if it is known.
    pub question_id: Option<&'a str>,
}

impl<'a> Answer<'a> {
    fn of(wanted: &'a Resume) -> Self {
        Self { input: wanted.input.as_deref(), question_id: wanted.question_id.as_deref() }
    }
}

/// Cancels a workflow for a caller, unless that would end the workflow of the caller's own handoff.
async fn cancel(context: &Context<'_>, task: &str, reason: Option<&str>) -> Result<Workflow, ToolError> {
    let ended = graph::reachable(&context.db, &[task.to_owned()], Direction::Dependents).await?;
    let ended: Vec<&str> = ended.iter().map(String::as_str).collect();
    check_not_own(context, &ended).await?;
    WorkflowBook::of(context).cancel(task, reason).await
}

/// Fails if the call is made by a handoff of the workflow of one of these tasks: the answers to its questions
/// are for people, and it ends by its steps.
pub(crate) async fn check_not_own(context: &Context<'_>, tasks: &[&str]) -> Result<(), ToolError> {
    let lease = context.caller.lease.lease();
    let Some(handoff) = lease.and_then(|lease| lease.handoff_id.as_deref()) else { return Ok(()) };
    let own = workflow_effect::Entity::find().filter(workflow_effect::Column::Id.eq(handoff));
    match own.one(&context.db).await? {
        Some(effect) if tasks.contains(&effect.task_id.as_str()) => Err(ToolError::Conflict(format!(
            "this handoff is a part of the workflow of task {} and cannot steer it: say what is missing in \
             your answer, and a person is asked",
            effect.task_id
        ))),
        _ => Ok(()),
    }
}

/// Says what is open now. An approval that names no question may be meant for an earlier one.
fn unnamed(row: &workflow::Model) -> ToolError {
    let id = row.interrupt_id.as_deref().unwrap_or_default();
    let asked = row.question.as_deref().unwrap_or_default();
    ToolError::Conflict(format!(
        "an approval names the question that was shown: give the `question_id` {id} if it was this one: \
         {asked}"
    ))
}

/// Says why a workflow that does not wait is not resumed.
fn not_waiting(task: &task::Model, status: Status) -> ToolError {
    if !matches!(status, Status::Queued | Status::Running) {
        return unfit(task, status, "be resumed");
    }
    let (name, status) = (&task.name, status.as_str());
    ToolError::Conflict(format!(
        "the workflow of the task {name} is already {status}: there is nothing to resume"
    ))
}

/// Says what can be done with a workflow instead.
fn unfit(task: &task::Model, status: Status, wanted: &str) -> ToolError {
    let instead = match status {
        Status::Queued | Status::Running => "workflow.pause and workflow.cancel stop it",
        Status::Waiting => "workflow.resume goes on with it, workflow.cancel ends it",
        Status::Failed | Status::Cancelled => "workflow.retry goes on with it",
        Status::Done => "create a new task to do it again",
    };
    let status = status.as_str();
    let name = &task.name;
    ToolError::Conflict(format!("the workflow of the task {name} is {status} and cannot {wanted}: {instead}"))
}

/// Checks the answer of a person. Returns it as the runner gets it.
fn check_input(waiting_for: WaitingFor, input: Option<&str>) -> Result<Option<String>, ToolError> {
    let input = input.map(str::trim).filter(|input| !input.is_empty());
    check::text("input", input.unwrap_or_default(), MAX_INPUT_BYTES)?;
    match (waiting_for, input) {
        (WaitingFor::Pause, None) => Ok(None),
        (WaitingFor::Pause, Some(_)) => {
            Err(ToolError::Invalid("the workflow is paused and asks nothing: leave `input` out".to_owned()))
        }
        (WaitingFor::Question, Some(input)) => Ok(Some(input.to_owned())),
        (WaitingFor::Question, None) => {
            Err(ToolError::Invalid("the workflow waits for an answer: give it as `input`".to_owned()))
        }
        (WaitingFor::Approval, Some(input)) => Ok(Some(yes_or_no(input).unwrap_or(input).to_owned())),
        (WaitingFor::Approval, None) => {
            Err(ToolError::Invalid("the workflow waits for approval: give yes or no as `input`".to_owned()))
        }
    }
}

/// Returns `yes` or `no` for the common ways to say so; any other text is passed on as it is.
fn yes_or_no(input: &str) -> Option<&'static str> {
    const YES: [&str; 16] = [
        "yes", "y", "yep", "yeah", "ok", "okay", "sure", "approve", "approved", "go", "go ahead", "true",
        "ja", "oui", "si", "👍",
    ];
    const NO: [&str; 13] = [
        "no", "n", "nope", "nay", "reject", "rejected", "deny", "denied", "stop", "false", "nein", "non",
        "👎",
    ];
    let said = input.trim_end_matches(['.', '!']).trim().to_lowercase();
    match () {
        () if YES.contains(&said.as_str()) => Some("yes"),
        () if NO.contains(&said.as_str()) => Some("no"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_is_understood_in_common_spellings() {
        for (input, said) in [("Yes", "yes"), ("OK!", "yes"), ("go ahead.", "yes"), ("NO", "no"), ("n", "no")]
        {
            assert_eq!(check_input(WaitingFor::Approval, Some(input)).unwrap().unwrap(), said, "{input}");
        }
        let other = check_input(WaitingFor::Approval, Some("only the first half")).unwrap();
        assert_eq!(other.as_deref(), Some("only the first half"));
        assert!(check_input(WaitingFor::Approval, Some("  ")).is_err());
        assert!(check_input(WaitingFor::Question, None).is_err());
        assert!(check_input(WaitingFor::Pause, Some("yes")).is_err());
    }
}
