//! Ends workflows: cancels their jobs and handoffs where needed, and prunes their history.

use contract::workflow::{EffectKind, EndReason, Outcome, Status};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, UpdateMany, sea_query::Expr,
};
use store::{
    NewMessage,
    entity::{job, lease, workflow, workflow_effect},
};
use subjects::{HandoffId, Subject};

use super::{WorkflowBook, events, history, publish};
use crate::{JobBook, ToolError};

impl WorkflowBook<'_> {
    /// Cancels those workflows of tasks that are active. The tasks are locked.
    pub(super) async fn cancel_active(
        &self,
        tasks: Vec<String>,
        reason: Option<&str>,
    ) -> Result<(), ToolError> {
        const IDS_PER_STATEMENT: usize = 500;
        let active = [Status::Queued, Status::Running, Status::Waiting].map(Status::as_str);
        for chunk in tasks.chunks(IDS_PER_STATEMENT) {
            let rows = workflow::Entity::find()
                .filter(workflow::Column::TaskId.is_in(chunk))
                .filter(workflow::Column::Status.is_in(active))
                .order_by_asc(workflow::Column::TaskId)
                .lock_exclusive()
                .all(self.db)
                .await?;
            for row in rows {
                self.cancel_one(row, reason).await?;
            }
        }
        Ok(())
    }

    async fn cancel_one(&self, row: workflow::Model, reason: Option<&str>) -> Result<(), ToolError> {
        let (task_id, epoch) = (row.task_id.clone(), row.epoch + 1);
        let why = reason.map_or_else(|| format!("cancelled by {}", self.by), str::to_owned);
        let mut change = workflow::ActiveModel::from(row);
        change.status = Set(Status::Cancelled.as_str().to_owned());
        // The runner that holds it is refused from now on.
        change.epoch = Set(epoch);
        change.holder = Set(None);
        change.lease_expires_at = Set(None);
        change.waiting_for = Set(None);
        change.question = Set(None);
        change.error = Set(Some(why.clone()));
        change.updated_at = Set(self.now);
        change.ended_at = Set(Some(self.now));
        change.update(self.db).await?;
        self.cancel_effects(&task_id).await?;
        history::prune(self.db, &task_id).await?;
        let event = events::of(events::WORKFLOW, Outcome::Cancelled, Some(why));
        events::add(self.db, (&task_id, epoch), [event], self.now).await
    }

    /// Asks that the jobs and handoffs of a workflow end, with the jobs that managers of the handoffs began.
    pub(super) async fn cancel_effects(&self, task: &str) -> Result<(), ToolError> {
        let open = workflow_effect::Entity::find()
            .filter(workflow_effect::Column::TaskId.eq(task))
            .filter(workflow_effect::Column::EndedAt.is_null())
            .order_by_asc(workflow_effect::Column::Id)
            .all(self.db)
            .await?;
        let jobs = JobBook::new(self.db, self.sandboxes, self.now);
        for effect in open {
            if effect.kind == EffectKind::Job.as_str() {
                let found = job::Entity::find_by_id(&effect.id).one(self.db).await?;
                let Some(job) = found.filter(|job| job.ended_at.is_none()) else { continue };
                // One that a person had cancelled before is that person's: it is not begun anew unasked.
                if job.cancel_requested_at.is_none() {
                    ended(&effect, EndReason::Cancelled).exec(self.db).await?;
                }
                jobs.cancel(&effect.id, &self.by).await?;
            } else {
                self.end_handoff(&effect, EndReason::Cancelled).await?;
            }
        }
        self.revoke_leases(task).await?;
        // Also of those that were answered: a manager may answer before its jobs have ended.
        let effects = workflow_effect::Entity::find().filter(workflow_effect::Column::TaskId.eq(task));
        let ids = effects.select_only().column(workflow_effect::Column::Id).into_query();
        jobs.cancel_where(job::Column::HandoffId.in_subquery(ids), &self.by).await
    }

    /// Revokes what is left of the leases of a workflow's handoffs, also of those that were answered: a
    /// worker that dies after its answer does not give its lease back.
    async fn revoke_leases(&self, task: &str) -> Result<(), ToolError> {
        let of_handoffs = workflow_effect::Entity::find()
            .select_only()
            .column(workflow_effect::Column::LeaseId)
            .filter(workflow_effect::Column::TaskId.eq(task))
            .filter(workflow_effect::Column::LeaseId.is_not_null())
            .into_query();
        let found = lease::Entity::find()
            .select_only()
            .column(lease::Column::Id)
            .filter(lease::Column::Id.in_subquery(of_handoffs))
            .filter(lease::Column::RevokedAt.is_null())
            .order_by_asc(lease::Column::Id);
        let ids: Vec<String> = found.into_tuple().all(self.db).await?;
        for id in ids {
            self.leases.revoke(self.db, &id, self.now, &self.by).await?;
        }
        Ok(())
    }

    /// Ends a handoff whose answer did not come in time, with the jobs that its manager began.
    pub(super) async fn give_up(&self, effect: &workflow_effect::Model) -> Result<(), ToolError> {
        self.end_handoff(effect, EndReason::GivenUp).await?;
        let jobs = JobBook::new(self.db, self.sandboxes, self.now);
        jobs.cancel_of_handoff(&effect.id, &self.by).await
    }

    /// Ends a handoff that has no answer: asks the workers to stop it. Whatever they do until they hear of
    /// it, its lease permits nothing any more. The reason is what every later call says about it.
    async fn end_handoff(&self, effect: &workflow_effect::Model, reason: EndReason) -> Result<(), ToolError> {
        let Ok(id) = effect.id.parse::<HandoffId>() else { return Ok(()) };
        let ended = ended(effect, reason).col_expr(workflow_effect::Column::EndedAt, Expr::value(self.now));
        ended.exec(self.db).await?;
        if let Some(lease) = &effect.lease_id {
            self.leases.revoke(self.db, lease, self.now, &self.by).await?;
        }
        publish::forget(self.db, &effect.id).await?;
        let message = NewMessage {
            // After the handoff itself, should that wait to be published.
            ordering: Some(effect.id.clone()),
            ..NewMessage::request(Subject::Cancel(id).to_string(), format!("{id}/cancel"))
        };
        Ok(self.sandboxes.outbox.add(self.db, message).await?)
    }
}

/// Returns the change that stores why a job or a handoff was ended.
fn ended(effect: &workflow_effect::Model, reason: EndReason) -> UpdateMany<workflow_effect::Entity> {
    workflow_effect::Entity::update_many()
        .col_expr(workflow_effect::Column::EndReason, Expr::value(reason.as_str()))
        .filter(workflow_effect::Column::TaskId.eq(&effect.task_id))
        .filter(workflow_effect::Column::Key.eq(&effect.key))
}
