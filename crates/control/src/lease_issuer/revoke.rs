//! Revokes leases and reports those that were valid.

use sea_orm::{
    ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::Expr,
};
use store::{NewMessage, clock, entity::lease};
use subjects::{
    lease::{REVOKED_SUBJECT, Revoked},
    streams,
};

use super::LeaseIssuer;
use crate::ToolError;

/// The most leases that are named in one statement.
const MAX_NAMED: usize = 500;

impl LeaseIssuer {
    /// Revokes a lease and those that were issued under it, and reports each. Returns how many were not
    /// revoked before.
    pub async fn revoke(
        &self,
        db: &DatabaseExecutor<'_>,
        id: &str,
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        self.revoke_all(db, vec![id.to_owned()], None, now, by).await
    }

    /// Gives back a lease of what has ended, such as an answered handoff: revokes it and those that were
    /// issued under it, as [`Self::revoke`], except for those of other handoffs. Whoever works on these gives
    /// theirs back, and one that became a dead letter is replayed under its own.
    pub(crate) async fn give_back(
        &self,
        db: &DatabaseExecutor<'_>,
        row: &lease::Model,
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        let of_no_other = of_no_other(row.handoff_id.as_deref());
        self.revoke_all(db, vec![row.id.clone()], Some(&of_no_other), now, by).await
    }

    /// Gives back the leases of a handoff, as [`Self::give_back`].
    pub(crate) async fn give_back_of_handoff(
        &self,
        db: &DatabaseExecutor<'_>,
        handoff: &str,
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        let ids = valid_of_handoff(db, handoff).await?;
        self.revoke_all(db, ids, Some(&of_no_other(Some(handoff))), now, by).await
    }

    /// Revokes the leases of a handoff and those that were issued under them, as [`Self::revoke`].
    pub(crate) async fn revoke_of_handoff(
        &self,
        db: &DatabaseExecutor<'_>,
        handoff: &str,
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        let ids = valid_of_handoff(db, handoff).await?;
        self.revoke_all(db, ids, None, now, by).await
    }

    /// Revokes leases and those that were issued under them, if they meet a condition.
    async fn revoke_all(
        &self,
        db: &DatabaseExecutor<'_>,
        mut ids: Vec<String>,
        condition: Option<&Condition>,
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        let mut revoked = 0;
        // A manager's lease, that of a job, and that of the job's node: there is an end to it.
        while !ids.is_empty() {
            // These first: nothing is issued under them any more, so the statements after that find all.
            for some in ids.chunks(MAX_NAMED) {
                revoked += self.revoke_some(db, some, now, by).await?;
            }
            let mut children: Vec<String> = Vec::new();
            for some in ids.chunks(MAX_NAMED) {
                let these = Condition::all().add(lease::Column::ParentId.is_in(some));
                let these = these.add_option(condition.cloned());
                let found = lease::Entity::find().filter(these).select_only().column(lease::Column::Id);
                let found: Vec<String> = found.into_tuple().all(db).await?;
                children.extend(found);
            }
            ids = children;
        }
        Ok(revoked)
    }

    async fn revoke_some(
        &self,
        db: &DatabaseExecutor<'_>,
        ids: &[String],
        now: i64,
        by: &str,
    ) -> Result<u64, ToolError> {
        let valid = lease::Entity::find()
            .filter(lease::Column::Id.is_in(ids))
            .filter(lease::Column::RevokedAt.is_null());
        // Locked in order: others may revoke the same ones.
        let rows = valid.order_by_asc(lease::Column::Id).lock_exclusive().all(db).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let revoked = lease::Entity::update_many()
            .col_expr(lease::Column::RevokedAt, Expr::value(now))
            .col_expr(lease::Column::RevokedBy, Expr::value(by))
            .filter(lease::Column::Id.is_in(rows.iter().map(|row| &row.id)))
            .exec(db)
            .await?;
        for row in &rows {
            self.outbox.add(db, report(row, now, by)).await?;
        }
        Ok(revoked.rows_affected)
    }
}

/// Returns the leases of a handoff that were not revoked.
async fn valid_of_handoff(db: &DatabaseExecutor<'_>, handoff: &str) -> Result<Vec<String>, ToolError> {
    let found = lease::Entity::find()
        .select_only()
        .column(lease::Column::Id)
        .filter(lease::Column::HandoffId.eq(handoff))
        .filter(lease::Column::RevokedAt.is_null())
        .order_by_asc(lease::Column::Id);
    Ok(found.into_tuple().all(db).await?)
}

/// Returns a condition for the leases of a handoff and for those of none.
fn of_no_other(handoff: Option<&str>) -> Condition {
    let of_this = handoff.map(|handoff| lease::Column::HandoffId.eq(handoff));
    Condition::any().add(lease::Column::HandoffId.is_null()).add_option(of_this)
}

/// Returns the message that a lease was revoked.
fn report(row: &lease::Model, now: i64, by: &str) -> NewMessage {
    let revoked = Revoked {
        lease_id: row.id.clone(),
        agent: row.agent.clone(),
        user_id: row.user_id.clone(),
        handoff_id: row.handoff_id.clone(),
        revoked_at: clock::text(now),
        revoked_by: by.to_owned(),
    };
    let (subject, body) = (REVOKED_SUBJECT.to_owned(), subjects::encode_json_text(&revoked));
    NewMessage::new(streams::EVENTS, subject, revoked.message_id(), body)
}
