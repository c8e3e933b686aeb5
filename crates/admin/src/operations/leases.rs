//! Leases: issue, list, show and revoke.

use api::{IssuedLease, Lease, LeaseFilter, LeaseState, NewLease};
use contract::lease::Issue;
use control::JobBook;
use sea_orm::{ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};
use store::{clock, entity::lease};

const FIELD: &str = "lease";
const MAX_LIMIT: u64 = 1000;

impl Admin {
    /// Issues a lease. Fails with [`Error::Invalid`] if the task or project belongs to another user.
    pub(crate) async fn issue_lease(&self, actor: &Actor, new: NewLease) -> Result<IssuedLease, Error> {
        const WHAT: &str = "admin.lease.issue";
        self.require_admin(actor, WHAT).await?;
        let wanted = parse(&new)?;
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        let new = control::NewLease { lease: wanted, parent_id: None, issued_by: actor.author() };
        let db = DatabaseExecutor::Transaction(&open.write);
        let issued = self.leases.issue(&db, new).await;
        let (row, issued) = issued.map_err(|error| convert_tool_error(FIELD, error))?;
        self.commit(open).await?;
        Ok(IssuedLease { lease: describe(row, clock::of_leases()), signed: issued.lease })
    }

    /// Lists leases, newest first.
    pub(crate) async fn list_leases(&self, actor: &Actor, filter: &LeaseFilter) -> Result<Vec<Lease>, Error> {
        actor.ensure_admin()?;
        let now = clock::of_leases();
        let mut query = lease::Entity::find().order_by_desc(lease::Column::IssuedAt);
        if let Some(state) = filter.state {
            query = query.filter(in_state(state, now));
        }
        let agent = filter.agent.map(|agent| agent.as_str().to_owned());
        let equal = [
            (lease::Column::Agent, &agent),
            (lease::Column::UserId, &filter.user_id),
            (lease::Column::TaskId, &filter.task_id),
            (lease::Column::HandoffId, &filter.handoff_id),
        ];
        for (column, wanted) in equal {
            if let Some(wanted) = wanted {
                query = query.filter(column.eq(wanted));
            }
        }
        let limit = filter.limit.unwrap_or(200).clamp(1, MAX_LIMIT);
        let rows = query.limit(limit).all(self.store.read()).await?;
        Ok(rows.into_iter().map(|row| describe(row, now)).collect())
    }

    pub(crate) async fn get_lease(&self, actor: &Actor, id: &str) -> Result<Lease, Error> {
        actor.ensure_admin()?;
        let row = lease::Entity::find_by_id(id).one(self.store.read()).await?;
        Ok(describe(row.ok_or_else(|| Error::not_found("lease", id))?, clock::of_leases()))
    }

    /// Revokes a lease and those that were issued under it: the next call with one of them is denied. Has
    /// the jobs end that were begun for its handoff, also if the worker has given the lease back: they
    /// outlive the answer.
    pub(crate) async fn revoke_lease(&self, actor: &Actor, id: &str) -> Result<Lease, Error> {
        const WHAT: &str = "admin.lease.revoke";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let (now, by) = (clock::now(), actor.author());
        let revoked = self.leases.revoke(&db, id, now, &by).await;
        revoked.map_err(|error| convert_tool_error(FIELD, error))?;
        let row = lease::Entity::find_by_id(id).one(&*open.write).await?;
        let row = row.ok_or_else(|| Error::not_found("lease", id))?;
        if let Some(handoff) = &row.handoff_id {
            let cancelled = JobBook::new(&db, &self.sandboxes, now).cancel_of_handoff(handoff, &by).await;
            cancelled.map_err(|error| convert_tool_error(FIELD, error))?;
        }
        self.commit(open).await?;
        Ok(describe(row, clock::of_leases()))
    }
}

/// Checks the ids of a new lease.
fn parse(new: &NewLease) -> Result<Issue, Error> {
    let id = |field: &'static str, text: &Option<String>| check::scope_id(field, text.as_deref());
    let user = check::scope_id("user_id", Some(&new.user_id))?;
    let user = user.ok_or_else(|| Error::invalid("user_id", "is required"))?;
    Ok(Issue {
        agent: new.agent,
        user_id: Some(user),
        project_id: id("project_id", &new.project_id)?,
        task_id: id("task_id", &new.task_id)?,
        run_id: id("run_id", &new.run_id)?,
        job_id: id("job_id", &new.job_id)?,
        handoff_id: id("handoff_id", &new.handoff_id)?,
        tools: new.tools.clone(),
        lifetime_seconds: new.lifetime_seconds,
        renewable_seconds: new.renewable_seconds,
    })
}

/// Returns a condition for the leases in a state at `now`, in microseconds since 1970.
fn in_state(state: LeaseState, now: i64) -> Condition {
    let kept = Condition::all().add(lease::Column::RevokedAt.is_null());
    match state {
        LeaseState::Revoked => Condition::all().add(lease::Column::RevokedAt.is_not_null()),
        LeaseState::Active => kept.add(lease::Column::ExpiresAt.gt(now)),
        LeaseState::Renewable => {
            kept.add(lease::Column::ExpiresAt.lte(now)).add(lease::Column::RenewableUntil.gt(now))
        }
        LeaseState::Ended => kept.add(lease::Column::RenewableUntil.lte(now)),
    }
}

fn describe(row: lease::Model, now: i64) -> Lease {
    let state = match row.revoked_at {
        Some(_) => LeaseState::Revoked,
        None if row.expires_at > now => LeaseState::Active,
        None if row.renewable_until > now => LeaseState::Renewable,
        None => LeaseState::Ended,
    };
    Lease {
        id: row.id,
        parent_id: row.parent_id,
        agent: row.agent,
        user_id: row.user_id,
        project_id: row.project_id,
        task_id: row.task_id,
        run_id: row.run_id,
        job_id: row.job_id,
        handoff_id: row.handoff_id,
        tools: row.tools.and_then(|tools| serde_json::from_str(&tools).ok()),
        profile: row.profile,
        state,
        issued_at: clock::text(row.issued_at),
        issued_by: row.issued_by,
        expires_at: clock::text(row.expires_at),
        renewable_until: clock::text(row.renewable_until),
        revoked_at: row.revoked_at.map(clock::text),
        revoked_by: row.revoked_by,
    }
}
