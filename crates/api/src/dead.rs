//! Dead letters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A dead-lettered handoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// Identifies the dead letter.
    pub number: u64,
    pub kind: String,
    /// The reason, as an error code.
    pub reason: String,
    /// The reason as a message.
    pub message: String,
    pub deliveries: u64,
    /// The instance that dead-lettered it.
    pub instance: String,
    /// `null` if the handoff is unreadable.
    pub handoff_id: Option<String>,
    /// Current state of the handoff: `open`, `in work`, `completed`, `cancelled`, `replayed` or `expired`.
    /// Only an open one can be replayed.
    pub state: String,
    /// Why it cannot be replayed.
    pub not_replayed: Option<String>,
    pub published_at: String,
    /// When it was dead-lettered, in microseconds since 1970.
    pub died_at: i64,
    /// Size of the handoff's message; `null` if it is stored separately because of its size.
    pub bytes: Option<usize>,
}

/// A dead letter with its headers and handoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterDetails {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Headers of the handoff's message.
    pub headers: BTreeMap<String, String>,
    /// The handoff; `null` if it is unreadable.
    pub body: Option<Value>,
    pub body_bytes: usize,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct DeadFilter {
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this reason, for example `poisoned`.
    pub reason: Option<String>,
    /// Maximum number of letters, up to 500; default 50.
    pub limit: Option<usize>,
}

/// A replayed dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayedLetter {
    pub number: u64,
    /// Id under which it was published; `null` if the handoff is unreadable.
    pub handoff_id: Option<String>,
    pub replay_of: Option<String>,
    /// What the replay changed in the handoff.
    pub notes: Vec<String>,
}
