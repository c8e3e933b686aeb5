//! The audit: where the chain begins, its signed heads, and the result of its verification.

use serde::{Deserialize, Serialize};
use subjects::audit::Head;

/// Where the chain begins: rows up to and including this one were pruned. The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pruned {
    pub pruned_seq: i64,
    pub pruned_hash: String,
}

/// Signed heads of the chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heads {
    /// The public key of the signer.
    pub key: String,
    pub heads: Vec<Head>,
}

/// The result of verifying the chain against its signed heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Verified))]
pub struct AuditVerification {
    pub ok: bool,
    /// Number of verified rows.
    pub rows: i64,
    /// Number of signed heads that match.
    pub heads: usize,
    /// The first invalid row.
    pub bad_row: Option<i64>,
    pub problem: Option<String>,
}
