//! What happens to the work for a client that closes its connection, as its API key says.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What happens to the work for a client that closes its connection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It goes on, and the answer can be fetched.
    #[default]
    Continue,
    Cancel,
}

impl OnDisconnect {
    pub const ALL: [Self; 2] = [Self::Continue, Self::Cancel];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Cancel => "cancel",
        }
    }
}

impl fmt::Display for OnDisconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`; expected continue or cancel")]
pub struct UnknownPolicy(pub String);

impl FromStr for OnDisconnect {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
