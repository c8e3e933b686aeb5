//! `egress.*`: calls of agents to external providers of models, for orchestrators.
//!
//! An orchestrator begins a call before it asks the provider, and ends it afterwards. Between the two, what
//! the call may use counts against the budget of its user.

use policy::AgentKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use crate::tool;

pub const MAX_PROVIDER_BYTES: usize = 64;
pub const MAX_MODEL_BYTES: usize = 256;
/// The longest time that a call may take.
pub const MAX_CALL_SECONDS: u64 = 60 * 60;
/// A call that was not ended is counted as lost this long after the time that it may take.
pub const LOST_AFTER_SECONDS: u64 = 60;

/// `egress.begin`: decides whether an agent may call a provider on behalf of its user, and opens the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// SHA-256 of the agent's token, in lower-case hexadecimal digits. The token itself is not sent.
    #[schemars(length(equal = 64))]
    pub token_hash: String,
    /// The signed lease that the agent presents.
    #[serde(default)]
    pub lease: Option<String>,
    #[schemars(length(min = 1, max = MAX_PROVIDER_BYTES))]
    pub provider: String,
    /// Absent if the call is not about one model.
    #[serde(default)]
    #[schemars(length(max = MAX_MODEL_BYTES))]
    pub model: Option<String>,
    /// What a user may use of the provider.
    #[serde(default)]
    pub limits: Limits,
    /// The most that the call can use, which is reserved until it ends. An estimate if there are no limits.
    #[serde(default)]
    pub expected: Consumption,
    /// How long the call may take.
    #[schemars(range(min = 1, max = MAX_CALL_SECONDS))]
    pub max_seconds: u64,
}

/// The budget of one user at one provider, for each day in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_day: Option<f64>,
}

/// What a call uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Consumption {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// In US dollars. 0 if the price is not known.
    pub usd: f64,
}

/// The open call, or why the call is not permitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Begun {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<OpenCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenCall {
    /// The call id of the row in the audit.
    pub call_id: String,
    pub agent: AgentKind,
    pub user_id: String,
    pub lease_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    pub code: DenialCode,
    /// Says why, and what to do.
    pub message: String,
    /// When another try may be permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

/// Why a call to a provider is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenialCode {
    UnknownToken,
    ExpiredToken,
    RevokedToken,
    /// A token of an agent type that asks no models.
    WrongAgent,
    MissingLease,
    UnknownLease,
    EarlyLease,
    ExpiredLease,
    RevokedLease,
    LeaseOfOtherAgent,
    /// The lease names a task or project that is not its user's, or is not for the token.
    LeaseMismatch,
    ProviderNotAllowed,
    BudgetUsedUp,
    /// Open calls may use up what is left of the budget.
    BudgetBusy,
}

impl DenialCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownToken => "unknown_token",
            Self::ExpiredToken => "expired_token",
            Self::RevokedToken => "revoked_token",
            Self::WrongAgent => "wrong_agent",
            Self::MissingLease => "missing_lease",
            Self::UnknownLease => "unknown_lease",
            Self::EarlyLease => "early_lease",
            Self::ExpiredLease => "expired_lease",
            Self::RevokedLease => "revoked_lease",
            Self::LeaseOfOtherAgent => "lease_of_other_agent",
            Self::LeaseMismatch => "lease_mismatch",
            Self::ProviderNotAllowed => "provider_not_allowed",
            Self::BudgetUsedUp => "budget_used_up",
            Self::BudgetBusy => "budget_busy",
        }
    }
}

tool!("egress.begin": Begin => Begun);

/// `egress.end`: ends a call, and counts what it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub call_id: String,
    pub outcome: CallOutcome,
    #[serde(default)]
    pub used: Consumption,
    /// Whether `used` is an estimate, because the provider did not say.
    #[serde(default)]
    pub is_estimate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Completed,
    /// The provider refused the request, failed, or did not answer.
    Failed,
    /// The agent closed its connection before the end.
    Cancelled,
}

impl CallOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// Whether this call ended it. Otherwise it had ended before.
    pub ended: bool,
}

tool!("egress.end": End => Ended);

/// `egress.usage`: what users used of providers, the last day first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    pub user_id: Option<ScopeId>,
    #[schemars(length(max = MAX_PROVIDER_BYTES))]
    pub provider: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

/// What one user used of one provider on one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DayUsage {
    /// The day in UTC: `2026-11-17`.
    pub day: String,
    pub user_id: String,
    pub provider: String,
    /// Calls that have ended.
    pub calls: i64,
    /// Of these, calls whose usage is an estimate.
    pub estimated_calls: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub usd: f64,
    /// Calls that have not ended.
    pub open_calls: i64,
}

tool!("egress.usage": Usage => crate::Page<DayUsage>);
