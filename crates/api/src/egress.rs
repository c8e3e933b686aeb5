//! What users used of external providers.

use serde::{Deserialize, Serialize};

/// What one user used of one provider on one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProviderUsage {
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct UsageFilter {
    pub user_id: Option<String>,
    pub provider: Option<String>,
    /// Default 200, at most 1000.
    pub limit: Option<u64>,
}
