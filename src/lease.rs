//! The lease of a handoff: on whose behalf the agent works.

use leased::HeldLease;
use policy::AgentKind;
use subjects::{ErrorCode, Handoff, Refusal, Role, ScopeId};

/// Reads the lease that a handoff carries and fills its ids into the scope of the handoff. The gateway
/// verifies the signature with every call; here it only has to fit the handoff.
pub(crate) fn admit(text: &str, handoff: &mut Handoff) -> Result<HeldLease, Refusal> {
    let held =
        HeldLease::read(text).map_err(|error| Refusal::invalid(format!("header Cynode-Lease: {error}")))?;
    let lease = &held.lease;
    let expected = agent_kind(handoff.kind().role());
    if lease.agent != expected {
        let why = format!("the lease is for a {}, and a {expected} works on this", lease.agent);
        return Err(Refusal::invalid(why));
    }
    let is_own =
        |id: &String| handoff.id.to_string() == *id || handoff.replays.iter().any(|of| of.to_string() == *id);
    if lease.handoff_id.as_ref().is_some_and(|id| !is_own(id)) {
        return Err(mismatch("the lease is for another handoff"));
    }
    let task = handoff.work.verify().map(|verify| verify.task_id.clone());
    let scope = &mut handoff.scope;
    fill(&mut scope.user_id, Some(&lease.user_id), "user")?;
    fill(&mut scope.project_id, lease.project_id.as_ref(), "project")?;
    let mut task = task.or_else(|| scope.task_id.clone());
    fill(&mut task, lease.task_id.as_ref(), "task")?;
    if lease.task_id.is_some() {
        scope.task_id = task;
    }
    Ok(held)
}

fn agent_kind(role: Role) -> AgentKind {
    match role {
        Role::ProjectManager => AgentKind::ProjectManager,
        Role::ProjectAnalyst => AgentKind::ProjectAnalyst,
    }
}

fn mismatch(why: &str) -> Refusal {
    Refusal::new(ErrorCode::ScopeMismatch, why)
}

/// Sets an id of the scope to that of the lease. Refuses a handoff that names another one.
fn fill(id: &mut Option<ScopeId>, of_lease: Option<&String>, what: &str) -> Result<(), Refusal> {
    let Some(of_lease) = of_lease else { return Ok(()) };
    match id {
        Some(id) if id.as_str() == of_lease => Ok(()),
        Some(_) => Err(mismatch(&format!("handoff and lease name different {what}s"))),
        None => {
            let parsed =
                of_lease.parse().map_err(|_| mismatch(&format!("the {what} id of the lease is not one")));
            *id = Some(parsed?);
            Ok(())
        }
    }
}
