//! Whether an upstream tool only reads. Its server says so by a hint; whose word counts is decided here and nowhere else.

use rmcp::model::{Tool as Shown, ToolAnnotations};

use crate::{
    store::entity::{tool_setting, upstream},
    tools::Does,
};

/// What an upstream tool does, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub does: Does,
    pub by: DoesBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoesBy {
    /// An administrator set it.
    Administrator,
    /// The server's hint, in the copy that was approved.
    Server,
    /// The server is a user's: its hint counts for nothing, so the tool may have an effect.
    Default,
}

impl Effect {
    pub fn of(
        server: &upstream::Model,
        setting: Option<&tool_setting::Model>,
        hints: Option<&ToolAnnotations>,
    ) -> Self {
        let said = setting.and_then(|setting| setting.does.as_deref());
        match said {
            Some(tool_setting::READ) => Self { does: Does::Read, by: DoesBy::Administrator },
            // What cannot be read may have an effect.
            Some(_) => Self { does: Does::Write, by: DoesBy::Administrator },
            None if server.owner.is_some() => Self { does: Does::Write, by: DoesBy::Default },
            None => {
                let reads = hints.and_then(|hints| hints.read_only_hint) == Some(true);
                let does = if reads { Does::Read } else { Does::Write };
                Self { does, by: DoesBy::Server }
            }
        }
    }

    /// Writes the effective value into what agents are shown. Hints that nobody vouches for are taken out.
    pub(super) fn annotate(self, shown: &mut Shown) {
        if self.by == DoesBy::Server {
            return;
        }
        let title = shown.annotations.take().and_then(|hints| hints.title);
        let mut annotations = ToolAnnotations::default();
        annotations.title = title;
        annotations.read_only_hint = Some(self.does == Does::Read);
        shown.annotations = Some(annotations);
    }
}
