//! The settings that decide about agents. The list is closed: administrators change these, agents never do.

/// A system setting that opens tools. It is off unless an administrator set it to `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Opens `sandbox.allowed_images.*` (P16, P24).
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

/// Keys under this name configure agents: what they are told, and which models receive their prompts.
const AGENTS: &str = "agents";

/// Returns whether a setting or preference with this key decides about agents, in whatever scope it is.
pub fn is_governing(key: &str) -> bool {
    // Keys are lowercase and without spaces; a key that is not is judged by what it would be.
    let key = key.trim().to_ascii_lowercase();
    Switch::of(&key).is_some() || key.split('.').next() == Some(AGENTS)
}
