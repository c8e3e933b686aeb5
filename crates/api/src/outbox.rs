//! Messages that wait to be published on NATS.

use serde::{Deserialize, Serialize};

/// What waits on one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitingMessages {
    pub subject: String,
    pub messages: i64,
    /// When the oldest was added.
    pub oldest_at: String,
}
