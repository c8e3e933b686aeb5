//! `workflow.job`: a job of a workflow, once for each key.

use contract::workflow::{EffectKind, JobBegun, RunJob};
use policy::{Scope, ScopedId};
use sea_orm::EntityTrait;
use serde_json::Value;
use store::{
    Store,
    entity::{job, workflow_effect},
};

use super::{effects, refusal, rights, rows, view, wait};
use crate::{
    BuiltInTool, Context, Does, LeaseIssuer, Sandboxes, ToolError,
    tools::sandbox::{ActingFor, create_job, describe_job, end_if_overdue, wait_for_end},
};

impl BuiltInTool for RunJob {
    const TITLE: &'static str = "Run a job of a workflow";
    const DESCRIPTION: &'static str = "Runs a command or a script in a sandbox for a step of a workflow, as \
        sandbox.run does, once for each key: the same key gives the same job. With `wait_seconds` the job \
        comes back once it has ended. A call ends a job that no node took within `queue_seconds` of the \
        workflow's policy. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = view::MAX_RESULT_BYTES;
    const WAITS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<JobBegun, ToolError> {
        wait::check(input.wait_seconds)?;
        effects::check(&input.key, Some(&input.step))?;
        let arguments = input.run.0.clone();
        let wanted = input.run.into_run(&input.task_id).map_err(ToolError::Invalid)?;
        // Of several calls with one key, one has the workflow locked; the others find what it began.
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        let known = effects::find(&context.db, &row.task_id, &input.key).await?;
        let (job, began, end_reason) = match known {
            Some(effect) if effect.kind != EffectKind::Job.as_str() => {
                return Err(refusal::key_in_use(&input.key, &effect.kind));
            }
            Some(effect) => {
                let end_reason = effects::end_reason(&effect)?;
                let found = job::Entity::find_by_id(&effect.id).one(&context.db).await?;
                let job = found.ok_or_else(|| ToolError::not_found("job", effect.id))?;
                let limit = view::policy_of(&row).queue_seconds();
                end_if_overdue(&context.db, context.sandboxes, &job, limit, context.now).await?;
                (job, false, end_reason)
            }
            None => {
                rights::check_job(&row, &wanted.tools)?;
                let profile = rights::profile_of(&context.db, &row).await?;
                let profile = profile.unwrap_or_else(|| context.profile().clone());
                rights::decide_job(context, &row, &profile, arguments).await?;
                let acting_for = ActingFor { user: row.user_id.clone(), profile };
                let job = create_job(context, wanted, Some(&acting_for)).await?;
                let effect = workflow_effect::Model {
                    task_id: row.task_id,
                    key: input.key,
                    kind: EffectKind::Job.as_str().to_owned(),
                    id: job.id.clone(),
                    step: Some(input.step),
                    lease_id: None,
                    epoch: input.epoch,
                    began_at: context.now,
                    ended_at: None,
                    end_reason: None,
                    answer: None,
                    cost_usd: None,
                };
                effects::insert(&context.db, effect).await?;
                (job, true, None)
            }
        };
        Ok(JobBegun { job: describe_job(&context.db, job, context.now).await?, began, end_reason })
    }

    /// Waits for the end of the job and returns it as it is then.
    async fn complete(
        store: &Store,
        sandboxes: &Sandboxes,
        _: &LeaseIssuer,
        input: Self,
        mut output: Value,
    ) -> Result<Value, ToolError> {
        let until = wait::until(input.wait_seconds);
        let Some(id) = output["job"]["job_id"].as_str().map(str::to_owned) else { return Ok(output) };
        let check = || wait::check_held(store, input.task_id.as_str(), input.epoch);
        if let Some(job) = wait_for_end(store, sandboxes, &id, until, check).await?
            && let Ok(job) = serde_json::to_value(job)
        {
            output["job"] = job;
        }
        Ok(output)
    }
}
