//! `workflow.start`: starts the workflow of a task, once.

use contract::{
    task::Status as TaskStatus,
    workflow::{MAX_QUEUE_SECONDS, Outcome, Policy, Start, Status, Trigger, Workflow},
};
use policy::{Scope, ScopedId};
use sea_orm::{EntityTrait, QuerySelect};
use store::entity::{task, workflow};
use subjects::workflow::check_steps;

use super::{WorkflowBook, events, message, rows, view};
use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{characters::holds_nul, check},
    task_rows::{self, Locked, graph::Direction},
};

/// The steps of a task as JSON.
const MAX_STEPS_BYTES: usize = 512 * 1024;
/// A step that needs approval, as JSON: a person is shown all of it, in a state of 512 KiB.
const MAX_APPROVED_BYTES: usize = 384 * 1024;
const MAX_TRIES: u32 = 20;
const MAX_STEP_SECONDS: u32 = 7 * 24 * 3_600;

impl BuiltInTool for Start {
    const TITLE: &'static str = "Start the workflow of a task";
    const DESCRIPTION: &'static str = "Starts the workflow of a task, which plans its steps, runs them in \
        sandboxes, has the results reviewed and ends with the task completed or failed. `steps` are planned \
        when not given. One that is active is given back as it is, with `already_active`. A task that waits \
        for others begins when they are completed. A cancelled task without a workflow is open again.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = view::MAX_RESULT_BYTES;

    async fn run(context: &Context<'_>, input: Self) -> Result<Workflow, ToolError> {
        let task = task_rows::find(context, &input.task_id).await?;
        let user = context.caller.bounds().map(|bounds| bounds.user);
        WorkflowBook::of(context).start_for(&task.id, &input, user.as_deref()).await
    }
}

impl WorkflowBook<'_> {
    /// Starts the workflow of a task. One that is active is returned as it is.
    /// `user` is whom the workflow acts for if the task belongs to no user.
    pub async fn start(&self, wanted: &Start, user: Option<&str>) -> Result<Workflow, ToolError> {
        self.start_for(wanted.task_id.as_str(), wanted, user).await
    }

    pub(super) async fn start_for(
        &self,
        task_id: &str,
        wanted: &Start,
        user: Option<&str>,
    ) -> Result<Workflow, ToolError> {
        let (steps, policy) = check(wanted)?;
        let direction = Direction::Dependencies;
        let Locked { task, others } = task_rows::lock_with_neighbours(self.db, task_id, direction).await?;
        // Of several starts at once, one has the task locked; the others find what it started.
        let existing = workflow::Entity::find_by_id(task_id).lock_exclusive().one(self.db).await?;
        if let Some(row) = existing {
            return self.join(row, &task).await;
        }
        let task = match task_rows::status_of(&task)? {
            // Perhaps only because a task that it depends on was cancelled, and that one goes on by now.
            TaskStatus::Canceled => {
                let is_ready = view::is_ready(&others);
                let status = if is_ready { TaskStatus::Ready } else { TaskStatus::Pending };
                task_rows::set_status(self.db, task, status, self.now).await?
            }
            status if task_rows::is_final(status) => {
                let why =
                    format!("the task {} is {}: create a new task to do it again", task.name, task.status);
                return Err(ToolError::Conflict(why));
            }
            _ => task,
        };
        let row = self.begin(&task, &others, steps, policy, user).await?;
        view::describe(self.db, row).await
    }

    /// Returns a workflow that is active. Says what to do about one that has ended.
    async fn join(&self, row: workflow::Model, task: &task::Model) -> Result<Workflow, ToolError> {
        let status = rows::status_of(&row)?;
        let what = match status {
            Status::Queued | Status::Running | Status::Waiting => {
                let workflow = view::describe(self.db, row).await?;
                return Ok(Workflow { already_active: true, ..workflow });
            }
            Status::Failed | Status::Cancelled => "workflow.retry goes on with it",
            Status::Done => "create a new task to do it again",
        };
        let why = format!("the workflow of the task {} is {}: {what}", task.name, status.as_str());
        Err(ToolError::Conflict(why))
    }

    /// Stores a workflow of a task that has none. The task is locked, and what it depends on cannot change.
    pub(super) async fn begin(
        &self,
        task: &task::Model,
        dependencies: &[task::Model],
        steps: Option<String>,
        policy: Policy,
        user: Option<&str>,
    ) -> Result<workflow::Model, ToolError> {
        let user_id = task.user_id.clone().or_else(|| user.map(str::to_owned)).ok_or_else(|| {
            let why = "the task belongs to no user, and a workflow acts for one: call under the lease of a \
                       user; administrators name one with `user_id`, or `cynodectl workflows start TASK \
                       --user ID`";
            ToolError::Conflict(why.to_owned())
        })?;
        if task.user_id.is_none() {
            // From now on the task acts for this user: others must not steer it, and its lease must reach it.
            task_rows::give_owner(self.db, task, &user_id, self.now).await?;
        }
        let rights = self.rights.for_user(self.db, &user_id).await?;
        let row = workflow::Model {
            task_id: task.id.clone(),
            status: Status::Queued.as_str().to_owned(),
            run: 1,
            trigger: Trigger::Start.as_str().to_owned(),
            epoch: 0,
            holder: None,
            lease_expires_at: None,
            sent: view::is_ready(dependencies),
            waiting_for: None,
            question: None,
            interrupt_id: None,
            input: None,
            steps,
            policy: subjects::encode_json_text(&policy),
            restarts: 0,
            error: None,
            summary: None,
            user_id,
            project_id: task.project_id.clone(),
            started_by: self.by.clone(),
            tools: rights.tools,
            profile: rights.profile,
            created_at: self.now,
            updated_at: self.now,
            ended_at: None,
        };
        let row = message::insert(self.db, self.sandboxes, row).await?;
        let event = events::of(events::WORKFLOW, Outcome::Started, Some(format!("by {}", self.by)));
        events::add(self.db, (&row.task_id, row.epoch), [event], self.now).await?;
        Ok(row)
    }

    /// Sends the run of a queued workflow if its task waits for nothing any more. The workflow is locked
    /// before the tasks are read: of two tasks that are completed at once, the later one finds both.
    pub(super) async fn send_if_ready(&self, task_id: &str) -> Result<bool, ToolError> {
        let row = workflow::Entity::find_by_id(task_id).lock_exclusive().one(self.db).await?;
        let Some(row) = row else { return Ok(false) };
        let dependencies = task_rows::graph::dependencies(self.db, task_id).await?;
        let is_queued = row.status == Status::Queued.as_str() && !row.sent;
        if is_queued && view::is_ready(&dependencies) {
            message::send_waiting(self.db, self.sandboxes, row, self.now).await?;
        }
        Ok(true)
    }

    /// Sets the status of a task that its workflow is about, unless it is final.
    pub(super) async fn set_task(
        &self,
        task: task::Model,
        status: TaskStatus,
    ) -> Result<task::Model, ToolError> {
        if task_rows::is_final(task_rows::status_of(&task)?) {
            return Ok(task);
        }
        task_rows::set_status(self.db, task, status, self.now).await
    }
}

/// Checks what a start gives. Returns the steps as they are stored, and the policy.
fn check(wanted: &Start) -> Result<(Option<String>, Policy), ToolError> {
    let policy = wanted.policy.unwrap_or_default();
    for (name, tries) in [("max_attempts", policy.max_attempts), ("max_reviews", policy.max_reviews)] {
        if !(1..=MAX_TRIES).contains(&tries) {
            return Err(ToolError::Invalid(format!("`policy.{name}` must be 1 to {MAX_TRIES}")));
        }
    }
    for (name, seconds, max) in [
        ("step_seconds", policy.step_seconds, MAX_STEP_SECONDS),
        ("queue_seconds", policy.queue_seconds, MAX_QUEUE_SECONDS),
    ] {
        if seconds.is_some_and(|seconds| !(1..=max).contains(&seconds)) {
            return Err(ToolError::Invalid(format!("`policy.{name}` must be 1 to {max}")));
        }
    }
    if wanted.steps.is_empty() {
        return Ok((None, policy));
    }
    check_steps(&wanted.steps).map_err(|error| ToolError::Invalid(format!("`steps`: {error}")))?;
    if serde_json::to_value(&wanted.steps).is_ok_and(|steps| holds_nul(&steps)) {
        return Err(ToolError::Invalid("`steps` holds a NUL character".to_owned()));
    }
    for step in wanted.steps.iter().filter(|step| step.needs_approval) {
        let size = subjects::encode_json_text(step).len();
        if size > MAX_APPROVED_BYTES {
            let why = format!(
                "`steps`: step `{}` needs approval and has {size} bytes as JSON; a person is shown at most \
                 {MAX_APPROVED_BYTES}",
                step.name
            );
            return Err(ToolError::Invalid(why));
        }
    }
    let steps = subjects::encode_json_text(&wanted.steps);
    check::text("steps", &steps, MAX_STEPS_BYTES)?;
    Ok((Some(steps), policy))
}
