//! The reasons for which a call is denied.

use super::{MemoryProfile, ScopedId};

/// The JSON-RPC code of a denial, in the range that JSON-RPC reserves for servers.
pub const DENIED_CODE: i32 = -32_003;

/// Why a call is not permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("missing or unknown token")]
    UnknownToken,
    #[error("the token has expired")]
    ExpiredToken,
    #[error("the token was revoked")]
    RevokedToken,
    #[error("a lease is required: it says on whose behalf the call is made")]
    MissingLease,
    #[error("unknown lease")]
    UnknownLease,
    #[error("the lease is not valid yet")]
    EarlyLease,
    #[error("the lease has expired")]
    ExpiredLease,
    #[error("the lease was revoked")]
    RevokedLease,
    #[error("the lease is for another agent type")]
    LeaseOfOtherAgent,
    #[error("the lease is bound to node {lease}, and the token is for node {token}")]
    LeaseOfOtherNode { lease: String, token: String },
    #[error(
        "the lease is for the memory profile `{lease}`, and the token is bound to `{token}`; \
         use a token that is bound to `{lease}` or to no profile"
    )]
    LeaseOfOtherProfile { lease: MemoryProfile, token: MemoryProfile },
    #[error("the lease does not include the tool")]
    OutsideLease,
    #[error("unknown tool")]
    UnknownTool,
    #[error("the tool changed and needs approval")]
    Quarantined,
    #[error("the tool is disabled")]
    Disabled,
    #[error("the tool is not available to this agent type")]
    OutOfScope,
    #[error("the tool is not on the allowlist of this agent type")]
    NotAllowed,
    #[error("the tool belongs to another user")]
    NotYours,
    #[error("not permitted by the system setting {0}")]
    SettingOff(&'static str),
    /// Does not hide the tool: the caller names its profile itself, and operators learn what to change.
    #[error(
        "the tool reaches the network, and the memory profile `{0}` may not; \
         an administrator can allow it with the system setting {setting}",
        setting = .0.network_setting()
    )]
    NetworkNotAllowed(MemoryProfile),
    #[error("denied by access rule {0}")]
    Rule(String),
    #[error("{0} is required")]
    MissingId(ScopedId),
    #[error("{0} is outside the scope of this token or lease")]
    MismatchedId(ScopedId),
    #[error("the address in `{0}` may not be fetched")]
    ForbiddenAddress(String),
    #[error("rate limit exceeded; try again in {0} s")]
    RateLimited(u64),
}

impl Denial {
    /// Returns the `error_type` of the audit row.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::UnknownToken => "unknown_token",
            Self::ExpiredToken => "expired_token",
            Self::RevokedToken => "revoked_token",
            Self::MissingLease => "missing_lease",
            Self::UnknownLease => "unknown_lease",
            Self::EarlyLease => "early_lease",
            Self::ExpiredLease => "expired_lease",
            Self::RevokedLease => "revoked_lease",
            Self::LeaseOfOtherAgent => "lease_of_other_agent",
            Self::LeaseOfOtherNode { .. } => "lease_of_other_node",
            Self::LeaseOfOtherProfile { .. } => "lease_of_other_profile",
            Self::OutsideLease => "outside_lease",
            Self::UnknownTool => "unknown_tool",
            Self::Quarantined => "quarantined",
            Self::Disabled => "disabled",
            Self::OutOfScope => "out_of_scope",
            Self::NotAllowed => "not_allowed",
            Self::NotYours => "not_yours",
            Self::SettingOff(_) => "setting_off",
            Self::NetworkNotAllowed(_) => "network_not_allowed",
            Self::Rule(_) => "rule",
            Self::MissingId(_) => "missing_id",
            Self::MismatchedId(_) => "mismatched_id",
            Self::ForbiddenAddress(_) => "forbidden_address",
            Self::RateLimited(_) => "too_fast",
        }
    }

    /// Returns whether the caller must not learn that the tool exists.
    pub fn hides_the_tool(&self) -> bool {
        matches!(
            self,
            Self::UnknownTool
                | Self::Quarantined
                | Self::Disabled
                | Self::OutOfScope
                | Self::NotAllowed
                | Self::NotYours
                | Self::OutsideLease
                | Self::SettingOff(_)
        )
    }
}
