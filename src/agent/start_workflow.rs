//! W7: starts the workflow of a task that this handoff created.

use contract::{ToolContract, workflow};
use subjects::ScopeId;

use super::{WorkError, session::Session};

/// Says what to do if this manager cannot start workflows.
pub(super) const NOT_OFFERED: &str = "the gateway does not offer `workflow.start` to this manager; connect \
    the gateway to NATS, or have an administrator permit the tool, and then start it on the task's page of \
    the console";

impl Session<'_> {
    /// Starts the workflow of a task. Returns why it was not started if it was not.
    pub(super) async fn start_workflow(
        &self,
        task_id: &str,
        run_id: Option<&ScopeId>,
    ) -> Result<Result<(), String>, WorkError> {
        if !self.catalogue.has(workflow::Start::NAME) {
            return Ok(Err(NOT_OFFERED.to_owned()));
        }
        let Ok(task_id) = task_id.parse() else { return Ok(Err(format!("`{task_id}` is not an id"))) };
        let start = workflow::Start { run_id: run_id.cloned(), ..workflow::Start::new(task_id) };
        let started = self.call(&start).await?;
        Ok(if started.failed { Err(started.text) } else { Ok(()) })
    }
}
