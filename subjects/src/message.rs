use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One message of a transcript: what was asked, what the model said and called, what came back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    User {
        content: String,
    },
    Assistant {
        content: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    Tool {
        call_id: String,
        name: String,
        content: String,
    },
}

/// A call as the model made it, not yet looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// As written: it may not even be JSON.
    pub arguments: String,
}

impl Message {
    pub fn user(content: impl Into<String>) -> Self {
        Self::User { content: content.into() }
    }

    pub fn content(&self) -> &str {
        match self {
            Self::User { content } | Self::Assistant { content, .. } | Self::Tool { content, .. } => content,
        }
    }
}
