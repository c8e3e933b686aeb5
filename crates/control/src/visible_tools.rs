//! The interface through which help sees the tools of one caller.

use std::{fmt, sync::Arc};

use policy::{Denial, Facts, Standing};
use serde_json::{Map, Value};

/// A tool as the agent sees it.
#[derive(Clone, Debug)]
pub struct VisibleTool {
    pub name: String,
    pub title: String,
    pub description: String,
    pub input_schema: Arc<Map<String, Value>>,
}

/// The tools that one caller may call. Implemented by the catalogue, so that help never reveals more than
/// `tools/list`.
pub trait VisibleTools: fmt::Debug + Sync {
    fn list(&self) -> Vec<VisibleTool>;

    /// Decides about what a tool does for another agent, as the gateway decides about a call of that agent.
    fn decide(
        &self,
        standing: &Standing,
        tool: &str,
        arguments: &Map<String, Value>,
        facts: &Facts,
    ) -> Result<(), Denial>;
}
