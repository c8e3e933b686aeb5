//! The lease of a job: its user, tools and lifetime.

use std::time::Duration;

use contract::lease::Issue;
use policy::{AgentKind, MemoryProfile};
use store::entity::task;
use subjects::{
    JobId, ScopeId,
    job::{JobSpec, MAX_WAIT},
};

use crate::{Context, NewLease, ToolError, lease_issuer};

/// What every job's lease includes: its node stores files with it and reads those that the job starts with.
/// The code in the sandbox has them only if the caller named them: a lease that is bound to a node is
/// without.
const OWN_TOOLS: [&str; 2] = ["sandbox.job.store", "artifact.get"];
/// Time limit for a node to fetch and to store the files of a job.
const FILES_TAKE: Duration = Duration::from_secs(600);

/// For whom a job acts that the caller begins for others.
#[derive(Clone, Debug)]
pub(crate) struct ActingFor {
    /// Used if the caller acts for no user itself.
    pub(crate) user: String,
    pub(crate) profile: MemoryProfile,
}

/// Returns the handoff for which the caller acts, if any. Its lease is locked until the transaction ends: no
/// job begins after its revocation, and the revocation finds all jobs that began before.
pub(super) async fn lock_handoff(context: &Context<'_>) -> Result<Option<String>, ToolError> {
    let lease = context.caller.lease.lease();
    let Some((lease, handoff)) = lease.and_then(|lease| Some((lease, lease.handoff_id.as_ref()?))) else {
        return Ok(None);
    };
    lease_issuer::lock_valid(&context.db, &lease.lease_id).await?;
    Ok(Some(handoff.clone()))
}

/// Issues the lease of a job. It is not bound to the caller's own, since a job may outlive the caller.
pub(super) async fn issue(
    context: &Context<'_>,
    task: &task::Model,
    acting_for: Option<&ActingFor>,
    job: JobId,
    spec: &JobSpec,
) -> Result<(String, String), ToolError> {
    let bounds = context.caller.bounds();
    let of_caller = bounds.as_ref().map(|bounds| bounds.user.clone());
    let of_other = || acting_for.map(|other| other.user.clone());
    let user = of_caller.or_else(of_other).or_else(|| task.user_id.clone());
    let user: ScopeId = user.and_then(|user| user.parse().ok()).ok_or_else(|| {
        let why = "the task belongs to no user, and a job acts for one: give the task a `user_id`, or call \
                   under a lease";
        ToolError::Invalid(why.to_owned())
    })?;
    let id = |id: Option<&String>| id.and_then(|id| id.parse::<ScopeId>().ok());
    let mut own: Vec<String> = OWN_TOOLS.map(str::to_owned).to_vec();
    own.extend(spec.tools.iter().filter(|tool| !OWN_TOOLS.contains(&tool.as_str())).cloned());
    let renewable = renewable_for(spec).min(context.leases.renewable_for);
    let lease = Issue {
        project_id: id(task.project_id.as_ref()),
        task_id: id(Some(&task.id)),
        run_id: id(bounds.as_ref().and_then(|bounds| bounds.run.as_ref())),
        job_id: Some(job.into()),
        tools: Some(own),
        renewable_seconds: Some(renewable.as_secs()),
        ..Issue::new(AgentKind::Sandbox, Some(user))
    };
    let new = NewLease { lease, parent_id: None, issued_by: context.author() };
    let profile = acting_for.map_or(context.profile(), |other| &other.profile).clone();
    let (row, issued) = context.leases.issue_with(&context.db, new, Some(profile)).await?;
    Ok((row.id, issued.lease))
}

/// Returns how long a job may need its lease: no node begins one that has waited for longer than this.
fn renewable_for(spec: &JobSpec) -> Duration {
    MAX_WAIT + Duration::from_secs(spec.limits.seconds.into()) + FILES_TAKE
}
