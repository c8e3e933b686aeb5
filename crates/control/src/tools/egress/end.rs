//! `egress.end`: ends a call and counts what it used.

use contract::egress::{CallOutcome, End, Ended};
use policy::Scope;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, EntityTrait, QuerySelect};
use store::entity::egress_call::{self, LOST};

use super::{
    Amount,
    budget::{self, Account},
};
use crate::{AttributedOutcome, Attribution, BuiltInTool, Context, Does, ToolError};

impl BuiltInTool for End {
    const TITLE: &'static str = "End a call to a provider";
    const DESCRIPTION: &'static str = "Ends a call that egress.begin opened, and counts what it used. A call \
        that had ended is left as it is.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Ended, ToolError> {
        let used = Amount::new(&input.used)?;
        let id = &input.call_id;
        let missing = || ToolError::not_found("call", id);
        let found = egress_call::Entity::find_by_id(id).one(&context.db).await?.ok_or_else(missing)?;
        context.attribution.set(attribute(&found, input.outcome));
        let account = Account { user_id: &found.user_id, provider: &found.provider, day: found.day.clone() };
        // Before the call, as everywhere.
        budget::lock_usage(&context.db, &account).await?;
        let call = egress_call::Entity::find_by_id(id).lock_exclusive().one(&context.db).await?;
        let call = call.ok_or_else(missing)?;
        let estimated = i64::from(input.is_estimate);
        match call.outcome.as_deref() {
            None => budget::add(&context.db, &account, (1, estimated), used).await?,
            // It was counted with an estimate, which what it really used replaces.
            Some(LOST) => {
                let difference = used.minus(budget::expected(&call));
                budget::add(&context.db, &account, (0, estimated - 1), difference).await?;
            }
            Some(_) => return Ok(Ended { ended: false }),
        }
        let mut change = egress_call::ActiveModel::from(call);
        change.outcome = Set(Some(input.outcome.as_str().to_owned()));
        change.ended_at = Set(Some(context.now));
        change.update(&context.db).await?;
        Ok(Ended { ended: true })
    }
}

/// Returns what the audit records: whom the call was made for, and how it ended.
fn attribute(call: &egress_call::Model, outcome: CallOutcome) -> Attribution {
    Attribution {
        agent: None,
        tool: None,
        lease_id: Some(call.lease_id.clone()),
        user_id: Some(call.user_id.clone()),
        project_id: call.project_id.clone(),
        task_id: call.task_id.clone(),
        run_id: call.run_id.clone(),
        job_id: call.job_id.clone(),
        outcome: match outcome {
            CallOutcome::Completed => AttributedOutcome::Success,
            CallOutcome::Failed => AttributedOutcome::Failed("provider_failed"),
            CallOutcome::Cancelled => AttributedOutcome::Failed("cancelled"),
        },
    }
}
