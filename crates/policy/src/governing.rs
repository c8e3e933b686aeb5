//! Governing settings: keys that control what agents may do. Only administrators may change them, never
//! agents.

use super::profile::is_profile_setting;

/// A system setting that enables tools. It is off unless an administrator has set it to `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Enables `sandbox.allowed_images.*` (P16, P24).
    AgentsMayAddImages,
}

impl Switch {
    pub const ALL: [Self; 1] = [Self::AgentsMayAddImages];

    pub fn key(self) -> &'static str {
        match self {
            Self::AgentsMayAddImages => "sandbox.allowed_images.agents_may_add",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::AgentsMayAddImages => {
                "Whether project managers may list, and add to, the container images that sandboxes may run."
            }
        }
    }

    /// Returns the switch with this key.
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.key() == key)
    }
}

/// Keys under this prefix configure agents: their instructions, and the models that receive their prompts.
const AGENTS_PREFIX: &str = "agents";

/// Returns whether a setting or preference with this key controls what agents may do, in any scope.
pub fn is_governing(key: &str) -> bool {
    // Valid keys are lowercase and have no spaces; any other key is normalised before it is judged.
    let key = key.trim().to_ascii_lowercase();
    let is_of_agents = key.split('.').next() == Some(AGENTS_PREFIX);
    Switch::of(&key).is_some() || is_of_agents || is_profile_setting(&key)
}
