//! Decides whether an upstream tool only reads: from the administrator's setting, the upstream's hint, or a
//! default.

use rmcp::model::{Tool as Definition, ToolAnnotations};

use control::Does;
use store::entity::{tool_setting, upstream};

/// Whether an upstream tool reads or writes, and where that comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub does: Does,
    pub source: EffectSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectSource {
    /// An administrator set it.
    Administrator,
    /// The upstream's hint in the approved definition.
    Server,
    /// The upstream belongs to a user: its hint is ignored, and the tool may have an effect.
    Default,
}

impl Effect {
    /// Determines the effect of a tool. The administrator's setting takes precedence over the hint.
    pub fn of(
        server: &upstream::Model,
        setting: Option<&tool_setting::Model>,
        hints: Option<&ToolAnnotations>,
    ) -> Self {
        let configured = setting.and_then(|setting| setting.does.as_deref());
        match configured {
            Some(tool_setting::READ) => Self { does: Does::Read, source: EffectSource::Administrator },
            // An unknown value counts as a write.
            Some(_) => Self { does: Does::Write, source: EffectSource::Administrator },
            None if server.owner.is_some() => Self { does: Does::Write, source: EffectSource::Default },
            None => {
                let reads = hints.and_then(|hints| hints.read_only_hint) == Some(true);
                let does = if reads { Does::Read } else { Does::Write };
                Self { does, source: EffectSource::Server }
            }
        }
    }

    /// Writes the effective value into the definition that agents see. Removes all other hints, unless the
    /// effect itself comes from the upstream's hint.
    pub(super) fn annotate(self, definition: &mut Definition) {
        if self.source == EffectSource::Server {
            return;
        }
        let title = definition.annotations.take().and_then(|hints| hints.title);
        let mut annotations = ToolAnnotations::default();
        annotations.title = title;
        annotations.read_only_hint = Some(self.does == Does::Read);
        definition.annotations = Some(annotations);
    }
}
