//! The objects that clients read: completions, and the chunks of a stream.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, BytesMut};
use contract::thread::{Turn, TurnAnswer};
use serde::Serialize;
use subjects::{HandoffId, MODEL_ID, Timestamp};

use super::surface::ID_PREFIX;
use crate::answering::{
    Extension,
    events::{event, pieces},
};

/// The identity of a completion, which is the same in every chunk of a stream.
#[derive(Clone, Debug)]
pub(crate) struct CompletionId {
    pub(super) id: String,
    /// Unix time.
    pub(super) created: i64,
    pub(super) model: String,
}

/// A whole completion.
#[derive(Debug, Serialize)]
pub(super) struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// Extensions of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    cynode: Option<Extension<'a>>,
}

#[derive(Debug, Serialize)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    finish_reason: &'static str,
    logprobs: Option<()>,
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<()>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl CompletionId {
    pub(super) fn of(turn: &Turn) -> Self {
        let created = turn.created_at.parse::<Timestamp>().map_or(0, |created| created.at().unix_timestamp());
        Self { id: format!("{ID_PREFIX}{}", turn.handoff_id), created, model: MODEL_ID.to_owned() }
    }

    /// Names a completion that is not stored.
    pub(super) fn new(model: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Self {
            id: format!("{ID_PREFIX}{}", HandoffId::now()),
            created: i64::try_from(now).unwrap_or(i64::MAX),
            model: model.to_owned(),
        }
    }
}

impl Usage {
    pub(super) fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }

    pub(super) fn of(answer: &TurnAnswer) -> Self {
        Self::new(answer.prompt_tokens, answer.completion_tokens)
    }
}

pub(super) fn finish_reason(answer: &TurnAnswer) -> &'static str {
    if answer.is_cut { "length" } else { "stop" }
}

impl<'a> Completion<'a> {
    /// Returns the completion of an answered turn.
    pub(super) fn answered(id: &'a CompletionId, turn: &'a Turn, answer: &'a TurnAnswer) -> Self {
        let usage = Some(Usage::of(answer));
        let cynode = Some(Extension::of(turn, Some(answer)));
        Self { usage, cynode, ..Self::text(id, &answer.text, finish_reason(answer)) }
    }

    /// Returns what is known of a turn that is still worked on: it has no choices yet.
    pub(super) fn in_progress(id: &'a CompletionId, turn: &'a Turn) -> Self {
        let cynode = Some(Extension::of(turn, None));
        Self { choices: Vec::new(), cynode, ..Self::text(id, "", "stop") }
    }

    pub(super) fn text(id: &'a CompletionId, content: &'a str, finish_reason: &'static str) -> Self {
        let message = Message { role: "assistant", content, refusal: None };
        Self {
            id: &id.id,
            object: "chat.completion",
            created: id.created,
            model: &id.model,
            choices: vec![Choice { index: 0, message, finish_reason, logprobs: None }],
            usage: None,
            cynode: None,
        }
    }
}

/// Writes the chunks of a stream as server-sent events.
#[derive(Clone, Debug)]
pub(crate) struct ChunkWriter {
    pub(super) id: CompletionId,
    pub(super) include_usage: bool,
}

#[derive(Debug, Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [ChunkChoice<'a>],
    /// `null` in all chunks but the last, if usage was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: ChunkDelta<'a>,
    finish_reason: Option<&'static str>,
    logprobs: Option<()>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

const DONE: &[u8] = b"data: [DONE]\n\n";

impl ChunkWriter {
    pub(super) fn role(&self, out: &mut BytesMut) {
        let delta = ChunkDelta { role: Some("assistant"), content: Some(""), ..ChunkDelta::default() };
        self.delta(out, delta, None);
    }

    pub(super) fn content(&self, out: &mut BytesMut, text: &str) {
        for piece in pieces(text) {
            self.delta(out, ChunkDelta { content: Some(piece), ..ChunkDelta::default() }, None);
        }
    }

    pub(super) fn reasoning(&self, out: &mut BytesMut, text: &str) {
        self.delta(out, ChunkDelta { reasoning_content: Some(text), ..ChunkDelta::default() }, None);
    }

    /// Writes the end of a success: why it ended, usage if it was asked for, and `[DONE]`.
    pub(super) fn finish(&self, out: &mut BytesMut, reason: &'static str, usage: Usage) {
        self.delta(out, ChunkDelta::default(), Some(reason));
        if self.include_usage {
            self.chunk(out, &[], Some(Some(usage)));
        }
        out.put_slice(DONE);
    }

    fn delta(&self, out: &mut BytesMut, delta: ChunkDelta<'_>, finish_reason: Option<&'static str>) {
        let choice = ChunkChoice { index: 0, delta, finish_reason, logprobs: None };
        self.chunk(out, &[choice], self.include_usage.then_some(None));
    }

    fn chunk(&self, out: &mut BytesMut, choices: &[ChunkChoice<'_>], usage: Option<Option<Usage>>) {
        let CompletionId { id, created, model } = &self.id;
        let object = "chat.completion.chunk";
        event(out, &subjects::encode_json(&Chunk { id, object, created: *created, model, choices, usage }));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(write: impl Fn(&ChunkWriter, &mut BytesMut), include_usage: bool) -> Vec<Value> {
        let id = CompletionId { id: "chatcmpl-1".into(), created: 7, model: "m".into() };
        let mut out = BytesMut::new();
        write(&ChunkWriter { id, include_usage }, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let events = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
        events.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
    }

    #[test]
    fn a_stream_ends_with_usage_if_it_was_asked_for() {
        let end = |writer: &ChunkWriter, out: &mut BytesMut| writer.finish(out, "stop", Usage::new(3, 4));
        let plain = written(end, false);
        assert_eq!(plain.len(), 2);
        assert_eq!(plain[0]["choices"][0]["finish_reason"], "stop");
        assert!(plain[0].get("usage").is_none());
        assert_eq!(plain[1], "[DONE]");
        let with_usage = written(end, true);
        assert_eq!(with_usage[0].get("usage"), Some(&Value::Null));
        assert_eq!(with_usage[1]["choices"], json!([]));
        assert_eq!(with_usage[1]["usage"]["total_tokens"], 7);
    }

    #[test]
    fn long_content_is_sent_in_pieces_that_add_up() {
        let text = "é\n".repeat(20_000);
        let pieces = written(|writer, out| writer.content(out, &text), false);
        assert!(pieces.len() > 2);
        let joined: String =
            pieces.iter().map(|piece| piece["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
        assert_eq!(joined, text);
    }
}
