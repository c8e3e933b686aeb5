//! Requests, replies and errors of model inference.

use std::{sync::Arc, time::Duration};

use data_encoding::HEXLOWER;
use schema::{Form, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subjects::Message;
pub(crate) use subjects::journal::{Finish, Reply, Tokens};

use super::service::Permit;
use crate::context::System;

/// The function by which a model asks the user a question.
pub(crate) const ASK_USER: &str = "ask_user";
/// The beginning of the message that asks again for a structured output that did not fit.
pub(crate) const REPAIR: &str = "That is not what was asked for";

/// The beginning of the message that rejects an answer which claims what was not done.
pub(crate) const OBJECTION: &str = "That is not true:";

/// Longest description of a tool: `help.get` tells the rest.
const MAX_DESCRIPTION: usize = 110;

/// One complete request to a model. Nothing is remembered between requests.
#[derive(Clone, Debug)]
pub(crate) struct Request<'m> {
    pub(crate) purpose: Purpose,
    /// Layers 1 to 5.
    pub(crate) system: System,
    /// Layer 6, and the turns since.
    pub(crate) messages: &'m [Message],
    pub(crate) tools: Arc<[Arc<Function>]>,
    /// Whether the model may call tools. If not, `tools` are only sent because the messages refer to them.
    pub(crate) may_call: bool,
    /// Set when a structured output is requested.
    pub(crate) output_schema: Option<OutputSchema>,
    pub(crate) temperature: f64,
    /// Whether the handoff asks for no temperature, so that the model's profile may have another one.
    pub(crate) is_default_temperature: bool,
    pub(crate) max_tokens: Option<u32>,
    /// How long models may take for it in all. Waiting for a server that is away, or for the permit, is not
    /// counted. Not part of what is asked.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) hint: Hint,
    /// The lease under which an external provider is asked. Not part of what is asked.
    pub(crate) lease: Option<Arc<str>>,
    /// Acquired before each request to a server, of which one question may take several. Not part of what is
    /// asked.
    pub(crate) permit: Option<&'m dyn Permit>,
}

impl Request<'_> {
    /// Waits until a server may be asked.
    pub(super) async fn wait_for_permit(&self) {
        if let Some(permit) = self.permit {
            permit.acquire().await;
        }
    }

    /// Returns the request as one JSON value; equal requests have equal values.
    pub(crate) fn canonical(&self) -> Value {
        json!([
            self.system.to_string(),
            self.messages,
            self.tools.iter().map(|tool| json!(**tool)).collect::<Vec<_>>(),
            self.output_schema,
            self.temperature,
            self.max_tokens,
            self.hint,
        ])
    }

    /// Returns a hash of the request. It is computed for every turn, so layers 1 and 2 enter it by their
    /// hash.
    pub(crate) fn hash(&self) -> String {
        let tools: Vec<&Function> = self.tools.iter().map(|tool| &**tool).collect();
        let asked = (
            self.system.digest_parts(),
            self.messages,
            tools,
            &self.output_schema,
            self.temperature,
            self.max_tokens,
            self.hint,
        );
        HEXLOWER.encode(&Sha256::digest(subjects::encode_json(&asked)))
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Purpose {
    /// A turn of the conversation, counted from 0.
    Turn(u32),
    /// A request for the structured output of this name.
    Think(&'static str),
}

/// Which of a route's models a request prefers.
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
    /// The schema in the form that all servers accept.
    pub(crate) parameters: Value,
    #[serde(skip)]
    pub(crate) schema: Schema,
    /// Whether a call may change something.
    #[serde(skip)]
    pub(crate) has_effect: bool,
}

impl Function {
    /// Lowers the tool's own schema to what model servers accept.
    pub(crate) fn new(name: &str, description: &str, own_schema: &Value) -> Self {
        let schema = Schema::read(own_schema);
        let parameters = schema.write(Form::TOOL);
        let (name, description) = (name.to_owned(), schema::first_sentence(description, MAX_DESCRIPTION));
        Self { name, description, parameters, schema, has_effect: false }
    }
}

/// The name and JSON Schema of a structured output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct OutputSchema {
    pub(crate) name: &'static str,
    pub(crate) schema: Arc<Value>,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Error {
    /// The server was unreachable, overloaded or broke off in every try. May succeed later.
    #[error("{model} did not respond after {tries} tries: {why}")]
    Unavailable { model: String, tries: u32, why: String },
    /// The model server does not accept this worker's token. The handoff is not at fault.
    #[error("{0}")]
    TokenRefused(String),
    /// The breaker was half-open, and this trial handoff found that the outage continues. The handoff is not
    /// at fault.
    #[error("{0}")]
    #[serde(rename = "StillAway")]
    OutageContinues(String),
    /// The request has more tokens than the model's context.
    #[error("{model} rejected the request: {why}")]
    TooLong {
        model: String,
        why: String,
        /// The model's context, if the server names it.
        #[serde(default)]
        limit: Option<usize>,
    },
    /// The model replied twice with something that cannot be used.
    #[error("the reply of {model} cannot be used: {why}")]
    Unusable { model: String, why: String },
    /// The server rejected the request itself. A retry cannot succeed.
    #[error("{model} rejected the request: {why}")]
    Refused { model: String, why: String },
    /// An external provider is asked under a lease only, and the gateway was away for too long.
    #[error("{0}")]
    NoLease(String),
    /// The preferences and the configuration allow no route.
    #[error("no model route is allowed: {0}")]
    NoRoute(String),
    /// G2: a recording only answers requests that were recorded.
    #[error("the recording has no answer to this {0}")]
    NotRecorded(String),
}

/// The scope of a transient fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// No response arrived, so the server is unavailable for all requests. Waiting may help.
    Unreachable,
    /// The server responded that it is unavailable. Waiting may help.
    Outage,
    /// The server was silent or broke off on this one request.
    Request,
    /// The user of this request has to wait: calls of the same user use up what is left of a budget.
    Limited,
}

impl FaultKind {
    /// Returns whether other requests would fail too.
    pub(super) fn is_outage(self) -> bool {
        match self {
            Self::Unreachable | Self::Outage => true,
            Self::Request | Self::Limited => false,
        }
    }
}

/// Why one try at one endpoint failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another try may succeed, after `retry_after` if the server sent it.
    Transient { why: String, retry_after: Option<Duration>, kind: FaultKind },
    /// The server does not accept this worker's token.
    Unauthorized(String),
    /// The egress denies this request, for its lease, a preference or a budget, or its provider cannot be
    /// asked until an operator has done something. Another handoff may be permitted.
    Denied { why: String, is_expired_lease: bool },
    /// There is no valid lease to ask under, since the gateway did not renew it.
    NoLease { why: String, is_token_refused: bool },
    /// The request has more tokens than the model's context.
    TooLong { limit: Option<usize>, why: String },
    /// The server rejected the request. The same request cannot succeed.
    Permanent(String),
    /// The model replied twice with something that cannot be used.
    Unusable(String),
}

impl Fault {
    /// Returns what the fault is, without its text.
    pub(super) fn reason(&self) -> subjects::Fault {
        match self {
            Self::Transient { kind: FaultKind::Unreachable, .. } => subjects::Fault::Unreachable,
            Self::Transient { kind: FaultKind::Outage | FaultKind::Limited, .. } => {
                subjects::Fault::Unavailable
            }
            Self::Transient { kind: FaultKind::Request, .. } | Self::Unusable(_) => {
                subjects::Fault::BadResponse
            }
            Self::NoLease { .. } => subjects::Fault::Unavailable,
            Self::Unauthorized(_) => subjects::Fault::Unauthorized,
            Self::Denied { .. } | Self::TooLong { .. } | Self::Permanent(_) => subjects::Fault::Refused,
        }
    }
}
