//! What the jobs and handoffs of a workflow may do: no more than whoever started it.

use policy::{AgentKind, MemoryProfile, Pattern};
use sea_orm::DatabaseExecutor;
use store::entity::workflow;

use crate::{Context, ToolError, check, profiles};

/// The tool that the job of a step stands for.
const RUN: &str = "sandbox.run";

/// The tools and the memory profile of whoever starts a workflow, as they are stored.
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
    /// one that a caller starts who acts for nobody, if the user has one.
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
