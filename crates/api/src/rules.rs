//! Access rules.

use policy::{AgentKind, Effect};
use serde::{Deserialize, Serialize};

/// A rule that allows or denies calls by agent, user, tool and argument. The first rule that applies decides.
/// A rule never permits what the settings of a tool or the allowlist of a role deny.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessRule {
    pub id: String,
    /// Position in the order of evaluation, counted from 1.
    pub position: i64,
    /// allow or deny; a rule that is unreadable denies.
    pub effect: String,
    pub agent: Option<String>,
    pub user_id: Option<String>,
    pub tool: String,
    pub argument: Option<String>,
    pub matches: Option<String>,
    pub note: String,
    pub created_at: String,
    pub created_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    pub effect: Effect,
    /// Default: all agents.
    #[serde(default)]
    pub agent: Option<AgentKind>,
    /// Applies only to agents that act for this user.
    #[serde(default)]
    pub user_id: Option<String>,
    /// Name of a tool, or a prefix followed by `*`.
    pub tool: String,
    /// JSON pointer to an argument of the call, such as `/url`.
    #[serde(default)]
    pub argument: Option<String>,
    /// Pattern for that argument; `*` matches any characters.
    #[serde(default)]
    pub matches: Option<String>,
    /// The reason for the rule.
    #[serde(default)]
    pub note: String,
    /// Position in the order of evaluation, counted from 1. Default: at the end.
    #[serde(default)]
    pub position: Option<usize>,
}

/// The ids of all rules, each once, in the order of evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Order))]
#[serde(deny_unknown_fields)]
pub struct RuleOrder {
    pub ids: Vec<String>,
}
