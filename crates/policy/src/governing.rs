//! Governing keys: settings and preferences that control what agents may do. Only administrators may change
//! them, never agents, and what an agent wrote under one has no effect.

/// A system setting that enables tools. It is off unless an administrator has set it to `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Enables `sandbox.allowed_images.*` (P16, P24).
    AgentsMayAddImages,
}

impl Switch {
    pub const ALL: [Self; 1] = [Self::AgentsMayAddImages];

    pub const fn key(self) -> &'static str {
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

/// A governing key, with all keys below it.
///
/// [`GOVERNING`] lists all of them, for settings and preferences in every scope. A new key by which an
/// administrator decides about agents belongs there, or below one that is there.
pub const GOVERNING: [&str; 4] = [
    // The instructions of agents, and the models that receive their prompts.
    "agents",
    // Which memory profile a user has, and which profiles may reach the network.
    super::profile::SETTINGS,
    Switch::AgentsMayAddImages.key(),
    START_WHEN_READY,
];

/// The system setting by which workflows of tasks that become ready are started without a call. It is off by
/// default.
pub const START_WHEN_READY: &str = "workflow.start_when_ready";

/// Prefix of the author of an administrator's change; see `Actor::author` in `admin`.
pub const ADMINISTRATOR: &str = "admin:";

/// Returns whether a setting or preference with this key controls what agents may do, in any scope.
pub fn is_governing(key: &str) -> bool {
    // Valid keys are lowercase and have no spaces; any other key is normalised before it is judged.
    let key = key.trim().to_ascii_lowercase();
    let is_below = |governing: &str| {
        key.strip_prefix(governing).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    GOVERNING.into_iter().any(is_below)
}

/// Returns whether a stored value has effect: that of a governing key only if an administrator wrote it.
pub fn has_effect(key: &str, author: &str) -> bool {
    !is_governing(key) || author.starts_with(ADMINISTRATOR)
}
