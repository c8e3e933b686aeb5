//! The agent on whose behalf an orchestrator calls: what its token and its lease are worth.

use policy::{
    Agent, AgentKind, Caller, Facts, Lease, LeaseMode, LeaseStanding, MemoryProfile, Standing, TaskFacts,
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use store::{
    clock,
    entity::{lease, lease_key, project, task, token},
};

use crate::{Context, ToolError};

/// Returns the standing of the agent with this token, given by its hash, and this lease.
pub(super) async fn look_up(
    context: &Context<'_>,
    token_hash: &str,
    signed: Option<&str>,
) -> Result<Standing, ToolError> {
    let row = token::Entity::find().filter(token::Column::Hash.eq(token_hash)).one(&context.db).await?;
    let Some(row) = row else { return Ok(Standing::Unknown) };
    // Tokens of administrators and users are of no agent type.
    let agent = row.agent.parse::<AgentKind>().ok();
    let (user, task, node) = (row.user_id.as_deref(), row.task_id.as_deref(), row.node.as_deref());
    let agent = agent.and_then(|kind| Agent::of_token(kind, user, task, node));
    let Some(agent) = agent else { return Ok(Standing::Unknown) };
    let profile = row.profile.as_deref().map(str::parse::<MemoryProfile>).transpose();
    let Ok(profile) = profile else { return Ok(Standing::Unknown) };
    let lease = look_up_lease(context, signed).await?;
    let profile = profile.or_else(|| lease.profile().cloned()).unwrap_or_default();
    let caller = Caller { token: row.id, agent, lease, profile };
    Ok(Standing::at(caller, clock::of_leases(), row.expires_at, row.revoked_at.is_some()))
}

async fn look_up_lease(context: &Context<'_>, signed: Option<&str>) -> Result<LeaseStanding, ToolError> {
    let Some(signed) = signed else { return Ok(LeaseStanding::Absent(LeaseMode::Required)) };
    let Ok(lease) = Lease::read(signed) else { return Ok(LeaseStanding::Unknown) };
    // Every gateway on the store has registered its key there.
    let trusted = lease_key::Entity::find_by_id(&lease.key).one(&context.db).await?;
    let row = lease::Entity::find_by_id(&lease.lease_id).one(&context.db).await?;
    let (Some(_), Some(row)) = (trusted, row) else { return Ok(LeaseStanding::Unknown) };
    let profile = row.profile.as_deref().map(str::parse::<MemoryProfile>).transpose();
    let Ok(profile) = profile else { return Ok(LeaseStanding::Unknown) };
    // The signed text leaves out `default`.
    let lease = Lease { profile, ..lease };
    let now = clock::of_signed_lease(lease.not_before, context.leases.lifetime);
    Ok(LeaseStanding::at(lease, now, row.renewable_until, row.revoked_at.is_some()))
}

/// Reads the owners of the task and the project that a lease names.
pub(super) async fn facts(context: &Context<'_>, standing: &Standing) -> Result<Facts, ToolError> {
    let mut facts = Facts::default();
    let lease = standing.caller().and_then(|caller| caller.lease.lease());
    if let Some(id) = lease.and_then(|lease| lease.task_id.as_ref())
        && let Some(row) = task::Entity::find_by_id(id).one(&context.db).await?
    {
        facts.tasks.insert(row.id, TaskFacts { user: row.user_id, project: row.project_id });
    }
    if let Some(id) = lease.and_then(|lease| lease.project_id.as_ref())
        && let Some(row) = project::Entity::find_by_id(id).one(&context.db).await?
    {
        facts.projects.insert(row.id, row.user_id);
    }
    Ok(facts)
}
