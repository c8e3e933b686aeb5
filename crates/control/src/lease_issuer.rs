//! Issues, renews and revokes leases in the store, for tools and for administrators.

mod revoke;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contract::lease::{Issue, Issued, MAX_TOOLS};
use nkeys::KeyPair;
use policy::{AgentKind, Lease, MemoryProfile};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use subjects::ScopeId;
use uuid::Uuid;

use crate::{ToolError, arguments::check, profiles};
use store::{
    Outbox, clock,
    entity::{lease, project, task},
};

/// Longest tool name or prefix in a lease.
const MAX_TOOL_BYTES: usize = 128;

/// Signs leases and limits how long they last. Reports those that are revoked.
#[derive(Debug)]
pub struct LeaseIssuer {
    pub key: KeyPair,
    pub outbox: Arc<Outbox>,
    /// How long a lease lasts before it must be renewed.
    pub lifetime: Duration,
    /// For how long a lease can be renewed.
    pub renewable_for: Duration,
}

/// A lease to be issued.
#[derive(Clone, Debug)]
pub struct NewLease {
    pub lease: Issue,
    pub parent_id: Option<String>,
    pub issued_by: String,
}

impl LeaseIssuer {
    /// Stores a new lease with the memory profile that its user has, if any, and returns it with its row.
    pub async fn issue(
        &self,
        db: &DatabaseExecutor<'_>,
        new: NewLease,
    ) -> Result<(lease::Model, Issued), ToolError> {
        let profile = profile_of(db, &new.lease).await?;
        self.issue_with(db, new, profile).await
    }

    /// Issues a lease for a handoff like [`Self::issue`], or signs one again that was issued for the same and
    /// can be renewed for long enough. So a handoff that waits to be published has few leases.
    pub(super) async fn issue_for_handoff(
        &self,
        db: &DatabaseExecutor<'_>,
        new: NewLease,
    ) -> Result<Issued, ToolError> {
        let profile = profile_of(db, &new.lease).await?;
        let same = self.find_same(db, &new.lease, profile.as_ref()).await?;
        let Some(row) = same else {
            return Ok(self.issue_with(db, new, profile).await?.1);
        };
        // They may be another user's by now.
        check_owners(db, &new.lease, &row.user_id).await?;
        self.sign(&row)
    }

    /// Returns the last lease of the wanted handoff if it is for the same and was not revoked, and at least
    /// half of the time in which it can be renewed is left.
    async fn find_same(
        &self,
        db: &DatabaseExecutor<'_>,
        wanted: &Issue,
        profile: Option<&MemoryProfile>,
    ) -> Result<Option<lease::Model>, ToolError> {
        let Some(handoff) = &wanted.handoff_id else { return Ok(None) };
        let half = i64::try_from(self.renewable_for.as_micros() / 2).unwrap_or(i64::MAX);
        let last = lease::Entity::find()
            .filter(lease::Column::HandoffId.eq(handoff.as_str()))
            .filter(lease::Column::Agent.eq(wanted.agent.as_str()))
            .filter(lease::Column::ParentId.is_null())
            .filter(lease::Column::RevokedAt.is_null())
            .filter(lease::Column::RenewableUntil.gt(clock::of_leases().saturating_add(half)))
            .order_by_desc(lease::Column::IssuedAt)
            .one(db)
            .await?;
        let ids = [&wanted.user_id, &wanted.project_id, &wanted.task_id, &wanted.run_id, &wanted.job_id];
        let ids = ids.map(|id| id.as_ref().map(ScopeId::as_str));
        let is_same = |row: &lease::Model| {
            let of_row = [&row.project_id, &row.task_id, &row.run_id, &row.job_id].map(Option::as_deref);
            ids[0] == Some(&*row.user_id)
                && ids[1..] == of_row
                && row.profile.as_deref() == profile.map(MemoryProfile::as_str)
                && row.tools.is_none()
                && wanted.tools.is_none()
        };
        Ok(last.filter(is_same))
    }

    /// Stores a new lease with a memory profile and returns it with its row. If the lease under which it is
    /// issued has a profile, it has that one.
    pub(super) async fn issue_with(
        &self,
        db: &DatabaseExecutor<'_>,
        new: NewLease,
        profile: Option<MemoryProfile>,
    ) -> Result<(lease::Model, Issued), ToolError> {
        let NewLease { lease: wanted, parent_id, issued_by } = new;
        let now = clock::of_leases();
        check_wanted(&wanted)?;
        let user_id = wanted.user_id.as_ref().map(ToString::to_string);
        let user_id = user_id.ok_or_else(|| ToolError::Invalid("name the `user_id`".to_owned()))?;
        check_owners(db, &wanted, &user_id).await?;
        let lifetime = self.limit("lifetime_seconds", wanted.lifetime_seconds, self.lifetime)?;
        let renewable = self.limit("renewable_seconds", wanted.renewable_seconds, self.renewable_for)?;
        let parent = match &parent_id {
            Some(id) => Some(lock_valid(db, id).await?),
            None => None,
        };
        let parent_ends = parent.as_ref().map_or(i64::MAX, |parent| parent.renewable_until);
        let profile = parent.and_then(|parent| parent.profile).or_else(|| profile.map(String::from));
        let tools = wanted.tools.map(|tools| check::to_json("tools", &tools.into(), 8 * 1024)).transpose()?;
        let text = |id: Option<ScopeId>| id.map(String::from);
        let row = lease::Model {
            id: Uuid::now_v7().to_string(),
            parent_id,
            agent: wanted.agent.as_str().to_owned(),
            user_id,
            project_id: text(wanted.project_id),
            task_id: text(wanted.task_id),
            run_id: text(wanted.run_id),
            job_id: text(wanted.job_id),
            handoff_id: text(wanted.handoff_id),
            tools,
            profile,
            issued_at: now,
            issued_by,
            not_before: now,
            expires_at: now.saturating_add(lifetime).min(parent_ends),
            renewable_until: now.saturating_add(renewable.max(lifetime)).min(parent_ends),
            revoked_at: None,
            revoked_by: None,
        };
        let insert = lease::Entity::insert(lease::ActiveModel::from(row.clone()));
        insert.exec_without_returning(db).await?;
        let issued = self.sign(&row)?;
        Ok((row, issued))
    }

    /// Returns a duration in microseconds, which may not exceed the setting.
    fn limit(&self, what: &str, wanted: Option<u64>, max: Duration) -> Result<i64, ToolError> {
        let wanted = wanted.map_or(max, Duration::from_secs);
        if wanted.is_zero() || wanted > max {
            return Err(ToolError::Invalid(format!("`{what}` must be 1 to {}", max.as_secs())));
        }
        Ok(i64::try_from(wanted.as_micros()).unwrap_or(i64::MAX))
    }

    fn sign(&self, row: &lease::Model) -> Result<Issued, ToolError> {
        self.sign_lease(row, to_lease(row)?)
    }

    /// Signs a lease that `row` describes.
    pub(super) fn sign_lease(&self, row: &lease::Model, lease: Lease) -> Result<Issued, ToolError> {
        let signed = lease.sign(&self.key).map_err(|error| ToolError::Invalid(error.to_string()))?;
        if signed.len() > policy::MAX_LEASE_BYTES {
            let (size, limit) = (signed.len(), policy::MAX_LEASE_BYTES);
            return Err(ToolError::TooLarge { what: "the lease", size, limit });
        }
        Ok(Issued {
            lease_id: row.id.clone(),
            lease: signed,
            expires_at: clock::text(row.expires_at),
            renewable_until: clock::text(row.renewable_until),
        })
    }

    /// Signs a lease again as it is stored. `None` if it is not there or was revoked.
    pub(super) async fn sign_again(
        &self,
        db: &DatabaseExecutor<'_>,
        id: &str,
    ) -> Result<Option<Issued>, ToolError> {
        let row = lease::Entity::find_by_id(id).one(db).await?;
        row.filter(|row| row.revoked_at.is_none()).map(|row| self.sign(&row)).transpose()
    }

    /// Extends a lease that was not revoked, up to the end of its renewals. Returns when it expires, too.
    pub(super) async fn renew(
        &self,
        db: &DatabaseExecutor<'_>,
        own: &Lease,
    ) -> Result<(i64, Issued), ToolError> {
        let (id, now) = (&own.lease_id, clock::of_leases());
        let found = lease::Entity::find_by_id(id).lock_exclusive().one(db).await?;
        let is_renewable = |row: &lease::Model| row.revoked_at.is_none() && row.renewable_until > now;
        let row = found.filter(is_renewable).ok_or_else(|| ToolError::not_found("lease", id))?;
        // As long as before, unless the setting has become shorter.
        let max = i64::try_from(self.lifetime.as_micros()).unwrap_or(i64::MAX);
        let lifetime = own.expires_at.saturating_sub(own.not_before).min(max);
        // Never earlier than before: another instance may hold the text with the later time.
        let expires_at = now.saturating_add(lifetime).min(row.renewable_until).max(row.expires_at);
        let mut change = lease::ActiveModel::from(row);
        change.not_before = Set(now.min(expires_at));
        change.expires_at = Set(expires_at);
        let row = change.update(db).await?;
        // What binds the lease to a node is not in the row; the call has verified it.
        let Lease { node, holder, audit_quota, local, rules, .. } = own.clone();
        let lease = Lease { node, holder, audit_quota, local, rules, ..to_lease(&row)? };
        Ok((expires_at, self.sign_lease(&row, lease)?))
    }
}

/// Returns the lease that a row describes, not signed yet and bound to no node.
pub(super) fn to_lease(row: &lease::Model) -> Result<Lease, ToolError> {
    let tools = row.tools.as_deref().map(serde_json::from_str).transpose();
    let parse = |text: &str| check::parse_stored::<MemoryProfile>("memory profile", text);
    let profile = row.profile.as_deref().map(parse).transpose()?;
    Ok(Lease {
        lease_id: row.id.clone(),
        agent: check::parse_stored("agent type", &row.agent)?,
        user_id: row.user_id.clone(),
        project_id: row.project_id.clone(),
        task_id: row.task_id.clone(),
        run_id: row.run_id.clone(),
        job_id: row.job_id.clone(),
        handoff_id: row.handoff_id.clone(),
        // A limit that cannot be read permits nothing.
        tools: tools.unwrap_or_else(|_| Some(Vec::new())),
        // Left out as in the audit, so that workers and nodes of an earlier release can read the lease.
        profile: profile.filter(|profile| !profile.is_default()),
        node: None,
        holder: None,
        audit_quota: None,
        local: BTreeMap::new(),
        rules: None,
        not_before: row.not_before,
        expires_at: row.expires_at,
        key: String::new(),
    })
}

/// Locks a lease that was not revoked, until the transaction ends, and returns it: such as one under which
/// another one is issued.
pub(super) async fn lock_valid(db: &DatabaseExecutor<'_>, id: &str) -> Result<lease::Model, ToolError> {
    let now = clock::of_leases();
    let found = lease::Entity::find_by_id(id).lock_exclusive().one(db).await?;
    let is_valid = |row: &lease::Model| row.revoked_at.is_none() && row.renewable_until > now;
    found.filter(is_valid).ok_or_else(|| ToolError::not_found("lease", id))
}

/// Returns the memory profile that the user of a wanted lease has, if any.
async fn profile_of(db: &DatabaseExecutor<'_>, wanted: &Issue) -> Result<Option<MemoryProfile>, ToolError> {
    match &wanted.user_id {
        Some(user) => profiles::of_user(db, user.as_str()).await,
        None => Ok(None),
    }
}

/// Fails if the task or the project belongs to another user. What does not exist yet is checked with every
/// call.
async fn check_owners(db: &DatabaseExecutor<'_>, wanted: &Issue, user: &str) -> Result<(), ToolError> {
    let task = match &wanted.task_id {
        Some(id) => task::Entity::find_by_id(id.as_str()).one(db).await?.and_then(|task| task.user_id),
        None => None,
    };
    let project = match &wanted.project_id {
        Some(id) => project::Entity::find_by_id(id.as_str()).one(db).await?.and_then(|it| it.user_id),
        None => None,
    };
    for (what, owner) in [("task", task), ("project", project)] {
        if owner.is_some_and(|owner| owner != user) {
            return Err(ToolError::Invalid(format!("the {what} belongs to a user other than {user}")));
        }
    }
    Ok(())
}

fn check_wanted(wanted: &Issue) -> Result<(), ToolError> {
    let invalid = |why: &str| Err(ToolError::Invalid(why.to_owned()));
    match wanted.agent {
        AgentKind::Orchestrator => return invalid("an orchestrator acts for no user and needs no lease"),
        AgentKind::Node => return invalid("a node acts under the leases of its jobs and needs no other"),
        AgentKind::Workflow => return invalid("a runner of workflows acts by its epoch and needs no lease"),
        AgentKind::ProjectAnalyst | AgentKind::Sandbox if wanted.task_id.is_none() => {
            return invalid("an analyst or a sandbox works on one task: name its `task_id`");
        }
        _ => {}
    }
    let tools = wanted.tools.as_deref().unwrap_or_default();
    check::count("tools", tools.len(), MAX_TOOLS)?;
    for tool in tools {
        check::non_blank("tool", tool, MAX_TOOL_BYTES)?;
        if tool.trim_end_matches('*').contains('*') || tool.ends_with("**") {
            return invalid("a `*` may only be the last character of a tool's name");
        }
    }
    Ok(())
}
