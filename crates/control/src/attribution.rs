//! What the audit records about a call that one program makes for another.

use std::sync::OnceLock;

/// Whom a call was made for, if not for its caller. What is absent is recorded as for any call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The agent that acts: its type and the id of its token.
    pub agent: Option<(String, String)>,
    /// The action of the agent, recorded in place of the tool's name.
    pub tool: Option<String>,
    pub lease_id: Option<String>,
    pub user_id: Option<String>,
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub outcome: AttributedOutcome,
}

/// How the audit records a call whose tool ran without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributedOutcome {
    #[default]
    Success,
    /// The agent's request was denied, with this code. The tool's transaction is rolled back.
    Denied(&'static str),
    /// The agent's request failed, with this code.
    Failed(&'static str),
}

/// Where a tool puts the attribution of its call.
#[derive(Debug, Default)]
pub struct AttributionSlot(OnceLock<Attribution>);

impl AttributionSlot {
    /// Sets the attribution. A tool sets it once; a second one is ignored.
    pub fn set(&self, attribution: Attribution) {
        drop(self.0.set(attribution));
    }

    pub fn take(&mut self) -> Option<Attribution> {
        self.0.take()
    }
}
