//! `workflow.lease.renew` and `release`: a runner holds a workflow for longer, or gives it back.

use contract::{
    task::Status as TaskStatus,
    workflow::{
        Outcome, Release, ReleaseOutcome, Renew, Renewed, Status, WaitingFor, Workflow as WorkflowView,
    },
};
use policy::{Scope, ScopedId};
use sea_orm::{ActiveModelTrait, ActiveValue::Set};
use store::{
    clock,
    entity::{task, workflow},
};

use super::{WorkflowBook, acquire, events, history, rights::Rights, rows, view};
use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{characters::without_nul, check},
    task_rows::{self, Locked, graph::Direction},
};

const MAX_TEXT_BYTES: usize = 16 * 1024;
const MAX_ID_BYTES: usize = 128;

impl BuiltInTool for Renew {
    const TITLE: &'static str = "Hold a workflow for longer";
    const DESCRIPTION: &'static str = "Renews the lease with which a runner holds a workflow. A stale epoch \
        is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Renewed, ToolError> {
        let lasts = acquire::ttl(input.ttl_seconds)?;
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        let expires_at = context.now.saturating_add(lasts);
        let mut change = workflow::ActiveModel::from(row);
        change.lease_expires_at = Set(Some(expires_at));
        change.update(&context.db).await?;
        Ok(Renewed { expires_at: clock::text(expires_at) })
    }
}

impl BuiltInTool for Release {
    const TITLE: &'static str = "Give a workflow back";
    const DESCRIPTION: &'static str = "Gives a workflow back with what became of it: done, failed, waiting \
        for a person, or handed back for another runner. The task is completed, failed or blocked with it. \
        A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = view::MAX_RESULT_BYTES;

    async fn run(context: &Context<'_>, input: Self) -> Result<WorkflowView, ToolError> {
        let outcome = storable(input.outcome);
        check_outcome(&outcome)?;
        let (db, id) = (&context.db, input.task_id.as_str());
        // Refused early: a stale runner waits for no lock.
        let held = rows::find_held(context, &input.task_id, input.epoch).await?;
        // What starts since the task is completed starts with the rights of this workflow.
        let book = WorkflowBook { rights: Rights::of_workflow(&held), ..WorkflowBook::of(context) };
        let task = match outcome {
            // Workflows that waited for it are sent.
            ReleaseOutcome::Done { .. } => {
                let Locked { task, .. } =
                    task_rows::lock_with_neighbours(db, id, Direction::Dependents).await?;
                task
            }
            _ => book.lock_task(id).await?,
        };
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        let row = book.release(row, task, outcome).await?;
        view::describe(db, row).await
    }
}

/// Returns an outcome whose texts can be stored. They quote what jobs and managers wrote; if they were
/// refused, no runner could ever give the workflow back with what became of it.
fn storable(outcome: ReleaseOutcome) -> ReleaseOutcome {
    match outcome {
        ReleaseOutcome::Done { summary } => ReleaseOutcome::Done { summary: without_nul(summary) },
        ReleaseOutcome::Failed { error } => ReleaseOutcome::Failed { error: without_nul(error) },
        ReleaseOutcome::Waiting { r#for, question, interrupt_id } => {
            ReleaseOutcome::Waiting { r#for, question: without_nul(question), interrupt_id }
        }
        ReleaseOutcome::HandedBack {} => ReleaseOutcome::HandedBack {},
    }
}

fn check_outcome(outcome: &ReleaseOutcome) -> Result<(), ToolError> {
    match outcome {
        ReleaseOutcome::Done { summary } => check::text("summary", summary, MAX_TEXT_BYTES),
        ReleaseOutcome::Failed { error } => check::non_blank("error", error, MAX_TEXT_BYTES),
        ReleaseOutcome::Waiting { r#for, question, interrupt_id } => {
            if *r#for == WaitingFor::Pause {
                let why = "a runner waits `for` a question or an approval; people pause workflows";
                return Err(ToolError::Invalid(why.to_owned()));
            }
            check::non_blank("question", question, MAX_TEXT_BYTES)?;
            check::non_blank("interrupt_id", interrupt_id, MAX_ID_BYTES)
        }
        ReleaseOutcome::HandedBack {} => Ok(()),
    }
}

impl WorkflowBook<'_> {
    /// Changes a workflow, which a runner held, and its task by what became of it.
    async fn release(
        &self,
        row: workflow::Model,
        task: task::Model,
        outcome: ReleaseOutcome,
    ) -> Result<workflow::Model, ToolError> {
        let holder = row.holder.clone().unwrap_or_default();
        let mut change = workflow::ActiveModel::from(row);
        change.holder = Set(None);
        change.lease_expires_at = Set(None);
        change.updated_at = Set(self.now);
        let is_handed_back = matches!(outcome, ReleaseOutcome::HandedBack {});
        if !is_handed_back {
            change.input = Set(None);
            change.interrupt_id = Set(None);
        }
        let mut set_status = |status: Status| {
            change.status = Set(status.as_str().to_owned());
            change.ended_at = Set(status.is_final().then_some(self.now));
        };
        let (task_status, event) = match outcome {
            ReleaseOutcome::Done { summary } => {
                set_status(Status::Done);
                change.summary = Set(Some(summary));
                (Some(TaskStatus::Completed), (events::WORKFLOW, Outcome::Ended, None))
            }
            ReleaseOutcome::Failed { error } => {
                set_status(Status::Failed);
                change.error = Set(Some(error.clone()));
                (Some(TaskStatus::Failed), (events::WORKFLOW, Outcome::Failed, Some(error)))
            }
            ReleaseOutcome::Waiting { r#for, question, interrupt_id } => {
                set_status(Status::Waiting);
                change.waiting_for = Set(Some(r#for.as_str().to_owned()));
                change.question = Set(Some(question.clone()));
                change.interrupt_id = Set(Some(interrupt_id));
                (Some(TaskStatus::Blocked), (events::WORKFLOW, Outcome::Waiting, Some(question)))
            }
            ReleaseOutcome::HandedBack {} => {
                set_status(Status::Queued);
                let detail = Some(format!("handed back by {holder}"));
                (None, (events::RUNNER, Outcome::Ended, detail))
            }
        };
        let row = change.update(self.db).await?;
        let (node, outcome, detail) = event;
        let event = events::of(node, outcome, detail);
        events::add(self.db, (&row.task_id, row.epoch), [event], self.now).await?;
        if let Some(status) = task_status {
            self.set_task(task, status).await?;
        }
        if rows::status_of(&row)?.is_final() {
            // What was given up may still go on.
            self.cancel_effects(&row.task_id).await?;
            history::prune(self.db, &row.task_id).await?;
        }
        if task_status == Some(TaskStatus::Completed) {
            self.continue_dependents(&row.task_id).await?;
        }
        Ok(row)
    }
}
