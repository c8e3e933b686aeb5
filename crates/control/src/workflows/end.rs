//! Ends workflows: with their jobs and handoffs if they are cancelled, and with less of their history.

use std::collections::BTreeMap;

use contract::workflow::{EffectKind, Outcome, Status};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::Expr,
};
use store::{
    NewMessage,
    entity::{job, workflow, workflow_effect, workflow_history, workflow_write},
};
use subjects::{HandoffId, Subject};

use super::{WorkflowBook, effects::EndReason, events};
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
        self.prune_history(&task_id).await?;
        let event = events::of(events::WORKFLOW, Outcome::Cancelled, Some(why));
        events::add(self.db, (&task_id, epoch), [event], self.now).await
    }

    /// Asks that the jobs and handoffs of a workflow end.
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
                let has_ended = job::Entity::find_by_id(&effect.id).one(self.db).await?;
                if has_ended.is_some_and(|job| job.ended_at.is_none()) {
                    jobs.cancel(&effect.id, &self.by).await?;
                }
            } else {
                self.end_handoff(&effect, EndReason::Cancelled).await?;
            }
        }
        Ok(())
    }

    /// Ends a handoff that has no answer: asks the workers to stop it. Whatever they do until they hear of
    /// it, its lease permits nothing any more. The reason is what every later call says about it.
    pub(super) async fn end_handoff(
        &self,
        effect: &workflow_effect::Model,
        reason: EndReason,
    ) -> Result<(), ToolError> {
        let Ok(id) = effect.id.parse::<HandoffId>() else { return Ok(()) };
        workflow_effect::Entity::update_many()
            .col_expr(workflow_effect::Column::EndedAt, Expr::value(self.now))
            .col_expr(workflow_effect::Column::EndReason, Expr::value(reason.as_str()))
            .filter(workflow_effect::Column::TaskId.eq(&effect.task_id))
            .filter(workflow_effect::Column::Key.eq(&effect.key))
            .exec(self.db)
            .await?;
        if let Some(lease) = &effect.lease_id {
            self.leases.revoke(self.db, lease, self.now, &self.by).await?;
        }
        let message = NewMessage {
            // After the handoff itself, should that wait to be published.
            ordering: Some(effect.id.clone()),
            ..NewMessage::request(Subject::Cancel(id).to_string(), format!("{id}/cancel"))
        };
        Ok(self.sandboxes.outbox.add(self.db, message).await?)
    }

    /// Keeps the latest checkpoint of each namespace, from which a retry goes on.
    pub(super) async fn prune_history(&self, task: &str) -> Result<(), ToolError> {
        let stored = workflow_history::Entity::find()
            .select_only()
            .columns([workflow_history::Column::Namespace, workflow_history::Column::CheckpointId])
            .filter(workflow_history::Column::TaskId.eq(task))
            .order_by_asc(workflow_history::Column::CheckpointId)
            .into_tuple::<(String, String)>();
        let latest: BTreeMap<String, String> = stored.all(self.db).await?.into_iter().collect();
        for (namespace, checkpoint) in latest {
            workflow_history::Entity::delete_many()
                .filter(workflow_history::Column::TaskId.eq(task))
                .filter(workflow_history::Column::Namespace.eq(&namespace))
                .filter(workflow_history::Column::CheckpointId.ne(&checkpoint))
                .exec(self.db)
                .await?;
            workflow_write::Entity::delete_many()
                .filter(workflow_write::Column::TaskId.eq(task))
                .filter(workflow_write::Column::Namespace.eq(&namespace))
                .filter(workflow_write::Column::CheckpointId.ne(&checkpoint))
                .exec(self.db)
                .await?;
        }
        Ok(())
    }
}
