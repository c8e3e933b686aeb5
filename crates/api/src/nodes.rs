//! Nodes. Their bodies are those of the tools.

pub use contract::node::{Condition as NodeCondition, Node, Removed as RemovedNode};
use serde::{Deserialize, Serialize};

/// When a node hands back what it still runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How many seconds running jobs get to end. Default 300, at most 86400.
    pub seconds: Option<u64>,
}
