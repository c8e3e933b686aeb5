//! What the jobs and handoffs of a workflow may do: no more than the caller that started it.

use std::collections::BTreeMap;

use policy::{
    Agent, AgentKind, Caller, Facts, Lease, LeaseStanding, MemoryProfile, Pattern, Standing, TaskFacts,
};
use sea_orm::{DatabaseExecutor, EntityTrait};
use serde_json::{Map, Value};
use store::entity::{task, workflow};

use crate::{Context, ToolError, arguments::check, profiles};

/// The tool whose permission the job of a step needs.
const RUN: &str = "sandbox.run";

/// The tools and the memory profile of the caller that starts a workflow, as they are stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// The only user whose workflows have them.
    user: Option<String>,
    pub(super) tools: Option<String>,
    pub(super) profile: Option<String>,
}

impl Rights {
    /// Returns the rights of a caller. A runner has none of its own.
    pub(super) fn of(context: &Context<'_>) -> Self {
        if context.caller.agent.kind() == AgentKind::Workflow {
            return Self::default();
        }
        let tools = context.caller.lease.lease().and_then(|lease| lease.tools.as_ref());
        Self {
            user: context.caller.bounds().map(|bounds| bounds.user),
            tools: tools.map(subjects::encode_json_text),
            profile: Some(context.profile().to_string()),
        }
    }

    /// Returns the rights of a workflow, for those that begin when its task is completed.
    pub(super) fn of_workflow(row: &workflow::Model) -> Self {
        let (tools, profile) = (row.tools.clone(), row.profile.clone());
        Self { user: Some(row.user_id.clone()), tools, profile }
    }

    /// Returns what a workflow of a user gets. That of another user has the profile of that user, and so has
    /// one started by a caller that acts for no user, if the user has one.
    pub(super) async fn for_user(&self, db: &DatabaseExecutor<'_>, user: &str) -> Result<Self, ToolError> {
        match &self.user {
            Some(own) if own == user => Ok(self.clone()),
            Some(_) => Ok(Self::default()),
            None => {
                let own = profiles::of_user(db, user).await?.map(String::from);
                Ok(Self { profile: own.or_else(|| self.profile.clone()), ..self.clone() })
            }
        }
    }
}

/// Returns the tools that a workflow is limited to. A limit that cannot be read permits nothing.
pub(super) fn tools_of(row: &workflow::Model) -> Option<Vec<String>> {
    row.tools.as_deref().map(|tools| serde_json::from_str(tools).unwrap_or_default())
}

/// Returns the memory profile of a workflow: as it was started, otherwise that of its user, if any.
pub(super) async fn profile_of(
    db: &DatabaseExecutor<'_>,
    row: &workflow::Model,
) -> Result<Option<MemoryProfile>, ToolError> {
    match &row.profile {
        Some(profile) => check::parse_stored("memory profile", profile).map(Some),
        None => profiles::of_user(db, &row.user_id).await,
    }
}

/// Fails unless a workflow may run a job that calls these tools.
pub(super) fn check_job(row: &workflow::Model, tools: &[String]) -> Result<(), ToolError> {
    let Some(limit) = tools_of(row) else { return Ok(()) };
    let includes = |tool: &str| limit.iter().any(|pattern| Pattern::new(pattern.as_str()).matches(tool));
    if !includes(RUN) {
        return Err(ToolError::Invalid(format!(
            "the lease under which this workflow was started does not include {RUN}, so its steps run no \
             jobs; create a new task and start it under a lease that includes {RUN}"
        )));
    }
    match tools.iter().find(|tool| !includes(tool)) {
        None => Ok(()),
        Some(tool) => Err(ToolError::Invalid(format!(
            "`tools` has {tool}, which goes beyond the lease under which this workflow was started"
        ))),
    }
}

/// Decides about the job of a step as about a call of sandbox.run with the same arguments: by a manager that
/// acts for the user, the task and the tools of the workflow. So what administrators set for sandbox.run
/// holds for both ways.
pub(super) async fn decide_job(
    context: &Context<'_>,
    row: &workflow::Model,
    profile: &MemoryProfile,
    mut arguments: Map<String, Value>,
) -> Result<(), ToolError> {
    arguments.insert("task_id".to_owned(), row.task_id.as_str().into());
    let mut facts = Facts::default();
    if let Some(task) = task::Entity::find_by_id(&row.task_id).one(&context.db).await? {
        facts.tasks.insert(task.id, TaskFacts { user: task.user_id, project: task.project_id });
    }
    let caller = Caller {
        token: context.caller.token.clone(),
        agent: Agent::Manager,
        lease: LeaseStanding::Valid(lease_of(row)),
        profile: profile.clone(),
    };
    let decided = context.visible_tools.decide(&Standing::Valid(caller), RUN, &arguments, &facts);
    decided.map_err(|denial| ToolError::Denied { tool: RUN, denial })
}

/// Returns the lease of a manager for a workflow, for a decision only: it is never issued.
fn lease_of(row: &workflow::Model) -> Lease {
    Lease {
        lease_id: String::new(),
        agent: AgentKind::ProjectManager,
        user_id: row.user_id.clone(),
        project_id: None,
        task_id: Some(row.task_id.clone()),
        run_id: None,
        job_id: None,
        handoff_id: None,
        tools: tools_of(row),
        profile: None,
        node: None,
        holder: None,
        audit_quota: None,
        local: BTreeMap::new(),
        rules: None,
        not_before: i64::MIN,
        expires_at: i64::MAX,
        key: String::new(),
    }
}
