//! `lease.*`: issues, renews and revokes leases.

mod bind;

use contract::lease::{Bind, Issue, Issued, Renew, Revoke, Revoked};
use policy::{AgentKind, Lease, Scope};
use sea_orm::EntityTrait;
use subjects::ScopeId;

use crate::{BuiltInTool, Context, Does, Entry, ToolError, lease_issuer::NewLease};
use store::entity::lease;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Issue>(), Entry::of::<Bind>(), Entry::of::<Renew>(), Entry::of::<Revoke>()]
}

impl BuiltInTool for Issue {
    const TITLE: &'static str = "Issue a lease";
    const DESCRIPTION: &'static str = "Issues a lease, which lets an agent act on behalf of a user. A \
        manager issues them for an analyst or a sandbox that works on one of its own tasks.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Issued, ToolError> {
        let parent = context.caller.lease.lease();
        let issued = match context.caller.agent.kind() {
            AgentKind::Orchestrator => {
                let new = NewLease { lease: input, parent_id: None, issued_by: context.author() };
                context.leases.issue(&context.db, new).await?
            }
            // Whoever works for a manager has its memories and no others.
            AgentKind::ProjectManager => {
                let parent_id = parent.map(|parent| parent.lease_id.clone());
                let lease = within_parent(input, parent)?;
                let new = NewLease { lease, parent_id, issued_by: context.author() };
                let profile = Some(context.profile().clone());
                context.leases.issue_with(&context.db, new, profile).await?
            }
            AgentKind::ProjectAnalyst | AgentKind::Sandbox | AgentKind::Node | AgentKind::Workflow => {
                return Err(ToolError::ReadOnly("leases".to_owned()));
            }
        };
        Ok(issued.1)
    }
}

/// Narrows a lease that a manager issues to what the manager acts for: an analyst or a sandbox, the same
/// user, one task, and no tool beyond its own lease.
fn within_parent(mut wanted: Issue, parent: Option<&Lease>) -> Result<Issue, ToolError> {
    if !matches!(wanted.agent, AgentKind::ProjectAnalyst | AgentKind::Sandbox) {
        let why = "a manager issues leases for a project_analyst or a sandbox only";
        return Err(ToolError::Invalid(why.to_owned()));
    }
    // The decision has compared user and task with the manager's own lease.
    let Some(parent) = parent else { return Ok(wanted) };
    match &wanted.tools {
        Some(tools) if !parent.includes_patterns(tools) => {
            return Err(ToolError::Invalid("`tools` go beyond the manager's own lease".to_owned()));
        }
        Some(_) => {}
        None => wanted.tools.clone_from(&parent.tools),
    }
    let inherit = |wanted: &mut Option<ScopeId>, own: &Option<String>| {
        if wanted.is_none() {
            *wanted = own.as_ref().and_then(|own| own.parse().ok());
        }
    };
    inherit(&mut wanted.user_id, &Some(parent.user_id.clone()));
    inherit(&mut wanted.project_id, &parent.project_id);
    inherit(&mut wanted.run_id, &parent.run_id);
    inherit(&mut wanted.job_id, &parent.job_id);
    Ok(wanted)
}

impl BuiltInTool for Renew {
    const TITLE: &'static str = "Renew a lease";
    const DESCRIPTION: &'static str = "Renews the lease under which the call is made, also after it expired.";
    const DOES: Does = Does::Write;

    async fn run(context: &Context<'_>, input: Self) -> Result<Issued, ToolError> {
        let own = context.caller.lease.lease();
        let own = own.ok_or_else(|| ToolError::Invalid("the call has no lease to renew".to_owned()))?;
        // Since it was bound, its memory profile may have been closed, or a namespace have been taken.
        let local = bind::permitted_namespaces(&context.db, context.profile(), &own.local).await?;
        let own = Lease { local, ..own.clone() };
        let (expires_at, issued) = context.leases.renew(&context.db, &own).await?;
        bind::note_renewal(&context.db, &own, (input.audit_lines, input.audit_head), expires_at).await?;
        Ok(issued)
    }
}

impl BuiltInTool for Revoke {
    const TITLE: &'static str = "Revoke a lease";
    const DESCRIPTION: &'static str = "Revokes a lease and those that were issued under it: the lease of the \
        call, then without those of other handoffs, or one that this agent issued.";
    const DOES: Does = Does::Write;

    async fn run(context: &Context<'_>, input: Self) -> Result<Revoked, ToolError> {
        let own = context.caller.lease.lease().map(|own| own.lease_id.clone());
        let id = input.lease_id.map(String::from).or_else(|| own.clone());
        let id = id.ok_or_else(|| ToolError::Invalid("name the `lease_id`".to_owned()))?;
        let missing = || ToolError::not_found("lease", &id);
        let row = lease::Entity::find_by_id(&id).one(&context.db).await?.ok_or_else(missing)?;
        let is_own = own.as_ref() == Some(&row.id) || (own.is_some() && row.parent_id == own);
        // Managers of several users share a token, so under a lease being the issuer is not enough.
        let is_issuer = own.is_none() && row.issued_by == context.author();
        let is_issuer = is_issuer || context.caller.agent.kind() == AgentKind::Orchestrator;
        if !is_own && !is_issuer {
            return Err(missing());
        }
        let (db, now, by) = (&context.db, context.now, context.author());
        let revoked = if own.as_ref() == Some(&row.id) {
            context.leases.give_back(db, &row, now, &by).await?
        } else {
            context.leases.revoke(db, &id, now, &by).await?
        };
        Ok(Revoked { lease_id: id, revoked })
    }
}
