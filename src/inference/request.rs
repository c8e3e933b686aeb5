use std::{sync::Arc, time::Duration};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subjects::Message;
pub(crate) use subjects::journal::{Finish, Reply, Tokens};

use crate::context::System;

/// One question to a model, complete: nothing is remembered between two of them.
#[derive(Clone, Debug)]
pub(crate) struct Request<'m> {
    pub(crate) purpose: Purpose,
    /// Layers 1 to 5.
    pub(crate) system: System,
    /// Layer 6, and what was said and done since.
    pub(crate) messages: &'m [Message],
    pub(crate) tools: Arc<[Arc<Function>]>,
    /// Otherwise the tools are there only because the messages speak of them.
    pub(crate) may_call: bool,
    /// Set when the answer must have a form.
    pub(crate) shape: Option<AnswerShape>,
    pub(crate) temperature: f64,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) hint: Hint,
}

impl Request<'_> {
    /// All that is asked, as one value: the same question has the same.
    pub(crate) fn in_full(&self) -> Value {
        json!([
            self.system.to_string(),
            self.messages,
            self.tools.iter().map(|tool| json!(**tool)).collect::<Vec<_>>(),
            self.shape,
            self.temperature,
            self.max_tokens,
            self.hint,
        ])
    }

    /// Done for every turn, so what is the same in all of them is not written again.
    pub(crate) fn hash(&self) -> String {
        let tools: Vec<&Function> = self.tools.iter().map(|tool| &**tool).collect();
        let asked = (
            self.system.essence(),
            self.messages,
            tools,
            &self.shape,
            self.temperature,
            self.max_tokens,
            self.hint,
        );
        // Nothing of a request can fail to be written.
        HEXLOWER.encode(&Sha256::digest(serde_json::to_vec(&asked).unwrap_or_default()))
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Purpose {
    /// A turn of the conversation, counted from 0.
    Turn(u32),
    /// A typed question beside the conversation.
    Think(&'static str),
}

/// Which of a route's models a request wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Hint {
    #[default]
    Usual,
    Fast,
    Strong,
}

/// A tool under the name that the model knows it by.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AnswerShape {
    pub(crate) name: &'static str,
    pub(crate) schema: Arc<Value>,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Error {
    /// Nobody there, overloaded, or broken off again and again. May pass.
    #[error("{model} did not respond after {tries} tries: {why}")]
    Unavailable { model: String, tries: u32, why: String },
    /// The model server does not accept this worker's token. The handoff is not at fault.
    #[error("{0}")]
    TokenRefused(String),
    /// A handoff that was taken up to find out whether an outage is over found that it is not. It is not at fault.
    #[error("{0}")]
    StillAway(String),
    /// The request itself was turned down. Does not pass.
    #[error("{model} rejected the request: {why}")]
    Refused { model: String, why: String },
    /// The preferences and the configuration leave nobody to ask.
    #[error("no model route is allowed: {0}")]
    NoRoute(String),
    /// G2: a recording answers only what was recorded.
    #[error("the recording has no answer to this {0}")]
    NotRecorded(String),
}

/// What a passing fault says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// The server is away, or answers nothing at the moment: every request will find so, and waiting may help.
    Outage,
    /// It was silent, or broke off, with this one request.
    Stumble,
}

/// Why one try at one endpoint failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Worth another try, perhaps not before some time.
    Passing {
        why: String,
        after: Option<Duration>,
        nature: Nature,
    },
    /// The server does not accept this worker's token.
    Unauthorized(String),
    Final(String),
}
