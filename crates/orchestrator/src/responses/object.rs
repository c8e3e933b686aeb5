//! The response that clients read.
//!
//! It has every field that OpenAI's own has, since some clients require them. Fields of the request that are
//! not stored (those of [`Echo`] but for `background`) are repeated in the response to it, and are empty in
//! one that is fetched later.

use std::time::{SystemTime, UNIX_EPOCH};

use contract::thread::{AnswerState, Turn, TurnAnswer};
use serde::Serialize;
use serde_json::{Map, Value, json};
use subjects::{HandoffId, MODEL_ID, Timestamp};

use super::{ID_PREFIX, MESSAGE_PREFIX, item_id};
use crate::{answering::Extension, direct::redact, error::ErrorObject};

/// The fields of the request that a response repeats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Echo {
    pub(super) background: bool,
    pub(super) metadata: Map<String, Value>,
    pub(super) parallel_tool_calls: bool,
    pub(super) previous_response_id: Option<String>,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            background: false,
            metadata: Map::new(),
            parallel_tool_calls: true,
            previous_response_id: None,
        }
    }
}

impl Echo {
    /// Returns what is stored of the request of a turn.
    pub(super) fn of(turn: &Turn) -> Self {
        Self { background: turn.options.background, ..Self::default() }
    }

    pub(super) fn redacted(mut self) -> Self {
        self.metadata.values_mut().for_each(redact);
        self
    }
}

/// The fields that are the same in every state of a response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(super) handoff_id: HandoffId,
    /// `None` if it is not stored.
    thread_id: Option<String>,
    /// Unix time.
    created_at: i64,
    /// Unix time; `None` if the answer is being stored now.
    ended_at: Option<i64>,
    temperature: Option<f64>,
    max_output_tokens: Option<u32>,
    echo: Echo,
}

impl Head {
    pub(super) fn of(turn: &Turn, echo: Echo) -> Self {
        let unix = |time: &str| time.parse::<Timestamp>().ok().map(|time| time.at().unix_timestamp());
        Self {
            handoff_id: turn.handoff_id,
            thread_id: Some(turn.thread_id.clone()),
            created_at: unix(&turn.created_at).unwrap_or(0),
            ended_at: turn.ended_at.as_deref().and_then(unix),
            temperature: turn.options.temperature,
            max_output_tokens: turn.options.max_tokens,
            echo,
        }
    }

    /// Names a response that is not stored.
    pub(super) fn new(echo: Echo) -> Self {
        Self {
            handoff_id: HandoffId::now(),
            thread_id: None,
            created_at: now(),
            ended_at: None,
            temperature: None,
            max_output_tokens: None,
            echo,
        }
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// The state of the turn in a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum State<'a> {
    Queued,
    InProgress,
    /// With the id of the message that is the answer.
    Answered(&'a TurnAnswer, &'a str),
    /// With why.
    Failed(&'a TurnAnswer, &'a ErrorObject<'a>),
}

#[derive(Debug, Serialize)]
pub(super) struct Message<'a> {
    id: &'a str,
    r#type: &'static str,
    status: &'static str,
    role: &'static str,
    content: Vec<TextPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(super) struct TextPart<'a> {
    r#type: &'static str,
    text: &'a str,
    annotations: [(); 0],
    logprobs: [(); 0],
}

#[derive(Debug, Serialize)]
pub(super) struct Usage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Debug, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ResponseObject<'a> {
    id: String,
    object: &'static str,
    created_at: i64,
    status: &'static str,
    background: bool,
    completed_at: Option<i64>,
    error: Option<&'a ErrorObject<'a>>,
    incomplete_details: Option<Value>,
    /// Not repeated: it may be large.
    instructions: Option<&'a str>,
    max_output_tokens: Option<u32>,
    max_tool_calls: Option<u32>,
    metadata: &'a Map<String, Value>,
    model: &'static str,
    output: Vec<Message<'a>>,
    parallel_tool_calls: bool,
    previous_response_id: Option<&'a str>,
    prompt_cache_key: Option<&'a str>,
    reasoning: Value,
    safety_identifier: Option<&'a str>,
    service_tier: &'static str,
    /// Every turn is stored, so that it can be resumed.
    store: bool,
    temperature: Option<f64>,
    text: Value,
    tool_choice: &'static str,
    tools: [(); 0],
    top_logprobs: u32,
    top_p: Option<f64>,
    truncation: &'static str,
    usage: Option<Usage>,
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cynode: Option<Extension<'a>>,
}

impl<'a> ResponseObject<'a> {
    pub(super) fn new(head: &'a Head, state: State<'a>) -> Self {
        let (answer, error, output) = match state {
            State::Queued | State::InProgress => (None, None, Vec::new()),
            State::Answered(answer, id) => {
                let message = Message::new(id, message_status(answer), Some(&answer.text));
                (Some(answer), None, vec![message.in_phase(Some("final_answer"))])
            }
            State::Failed(answer, error) => (Some(answer), Some(error), Vec::new()),
        };
        let is_cut = matches!(state, State::Answered(answer, _) if answer.is_cut);
        let is_complete = matches!(state, State::Answered(answer, _) if !answer.is_cut);
        let thread = head.thread_id.as_deref();
        Self {
            id: format!("{ID_PREFIX}{}", head.handoff_id),
            object: "response",
            created_at: head.created_at,
            status: status(state),
            background: head.echo.background,
            completed_at: is_complete.then(|| head.ended_at.unwrap_or_else(now)),
            error,
            incomplete_details: is_cut.then(|| json!({ "reason": "max_output_tokens" })),
            instructions: None,
            max_output_tokens: head.max_output_tokens,
            max_tool_calls: None,
            metadata: &head.echo.metadata,
            model: MODEL_ID,
            output,
            parallel_tool_calls: head.echo.parallel_tool_calls,
            previous_response_id: head.echo.previous_response_id.as_deref(),
            prompt_cache_key: None,
            reasoning: json!({ "effort": null, "summary": null }),
            safety_identifier: None,
            service_tier: "default",
            store: true,
            temperature: head.temperature,
            text: json!({ "format": { "type": "text" } }),
            tool_choice: "auto",
            tools: [],
            top_logprobs: 0,
            top_p: None,
            truncation: "disabled",
            usage: answer.map(Usage::of),
            user: None,
            cynode: thread.map(|thread| Extension::new(thread, head.handoff_id, answer)),
        }
    }
}

/// Returns the id of the message of a stored answer.
pub(super) fn message_id(head: &Head) -> String {
    item_id(MESSAGE_PREFIX, head.handoff_id, 0)
}

pub(super) fn message_status(answer: &TurnAnswer) -> &'static str {
    if answer.is_cut { "incomplete" } else { "completed" }
}

fn status(state: State<'_>) -> &'static str {
    match state {
        State::Queued => "queued",
        State::InProgress => "in_progress",
        State::Answered(answer, _) => message_status(answer),
        State::Failed(answer, _) if answer.state == AnswerState::Cancelled => "cancelled",
        State::Failed(..) => "failed",
    }
}

impl<'a> Message<'a> {
    /// Without a text it is just begun.
    pub(super) fn new(id: &'a str, status: &'static str, text: Option<&'a str>) -> Self {
        let content = text.map(TextPart::new).into_iter().collect();
        Self { id, r#type: "message", status, role: "assistant", content, phase: None }
    }

    /// Says whether it is the answer, if that is known.
    pub(super) fn in_phase(self, phase: Option<&'static str>) -> Self {
        Self { phase, ..self }
    }
}

impl<'a> TextPart<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { r#type: "output_text", text, annotations: [], logprobs: [] }
    }
}

impl Usage {
    fn of(answer: &TurnAnswer) -> Self {
        Self {
            input_tokens: answer.prompt_tokens,
            input_tokens_details: InputDetails { cached_tokens: 0, cache_write_tokens: 0 },
            output_tokens: answer.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: answer.prompt_tokens + answer.completion_tokens,
        }
    }
}
