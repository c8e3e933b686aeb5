//! Writes a response as a stream of events.
//!
//! The text of each turn of the model is a message of its own, and so is what was withdrawn: content is never
//! taken back. Tool calls are the summary of a reasoning item. One item is open at a time, since some clients
//! follow only one. The response in the last event has the answer alone.

use bytes::BytesMut;
use contract::thread::TurnAnswer;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    MESSAGE_PREFIX, REASONING_PREFIX, item_id,
    object::{Head, Message, ResponseObject, State, TextPart, message_status},
};
use crate::{
    answering::{
        Boundary, Shown, StreamWriter,
        events::{named_event, pieces},
        failure,
    },
    error::{ApiError, ERROR_EVENT},
};

const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

#[derive(Debug)]
pub(crate) struct ResponseWriter {
    head: Head,
    next_number: u64,
    next_index: u32,
    messages: u32,
    reasonings: u32,
    open: Option<OpenItem>,
}

#[derive(Debug)]
struct OpenItem {
    kind: ItemKind,
    id: String,
    index: u32,
    /// The part of it that was sent.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
}

#[derive(Serialize)]
struct Event<'a, T> {
    r#type: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct ResponseBody<'a> {
    response: ResponseObject<'a>,
}

#[derive(Serialize)]
struct ItemBody<T> {
    output_index: u32,
    item: T,
}

/// The part of an item that an event is about. A message has contents, a reasoning has summaries.
#[derive(Serialize)]
struct PartBody<'a, T> {
    item_id: &'a str,
    output_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<u32>,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Part<T> {
    part: T,
}

#[derive(Serialize)]
struct TextDelta<'a> {
    delta: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

#[derive(Serialize)]
struct WholeText<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

impl ResponseWriter {
    pub(super) fn new(head: Head) -> Self {
        Self { head, next_number: 0, next_index: 0, messages: 0, reasonings: 0, open: None }
    }

    fn event(&mut self, out: &mut BytesMut, kind: &str, body: impl Serialize) {
        let sequence_number = self.next_number;
        self.next_number += 1;
        named_event(out, kind, &subjects::encode_json(&Event { r#type: kind, sequence_number, body }));
    }

    /// Writes an event with the whole response.
    fn response(&mut self, out: &mut BytesMut, kind: &str, state: State<'_>) {
        let sequence_number = self.next_number;
        self.next_number += 1;
        let body = ResponseBody { response: ResponseObject::new(&self.head, state) };
        named_event(out, kind, &subjects::encode_json(&Event { r#type: kind, sequence_number, body }));
    }

    /// Writes an event about the one part of an item.
    fn part(&mut self, out: &mut BytesMut, item: &OpenItem, kind: &str, content: impl Serialize) {
        let (content_index, summary_index) = match item.kind {
            ItemKind::Message => (Some(0), None),
            ItemKind::Reasoning => (None, Some(0)),
        };
        let (item_id, output_index) = (item.id.as_str(), item.index);
        self.event(out, kind, PartBody { item_id, output_index, content_index, summary_index, content });
    }

    /// Returns the open item of a kind, which is opened if it is not. Another kind is closed before.
    fn open(&mut self, out: &mut BytesMut, kind: ItemKind) -> OpenItem {
        match self.open.take() {
            Some(item) if item.kind == kind => return item,
            Some(other) => self.close(out, &other, COMPLETED, None),
            None => {}
        }
        let (prefix, number) = match kind {
            ItemKind::Message => (MESSAGE_PREFIX, &mut self.messages),
            ItemKind::Reasoning => (REASONING_PREFIX, &mut self.reasonings),
        };
        let id = item_id(prefix, self.head.handoff_id, *number);
        *number += 1;
        let item = OpenItem { kind, id, index: self.next_index, text: String::new() };
        self.next_index += 1;
        let output_index = item.index;
        match kind {
            ItemKind::Message => {
                let message = Message::new(&item.id, "in_progress", None);
                self.event(out, "response.output_item.added", ItemBody { output_index, item: message });
                let part = Part { part: TextPart::new("") };
                self.part(out, &item, "response.content_part.added", part);
            }
            ItemKind::Reasoning => {
                let reasoning = reasoning(&item.id, "in_progress", None);
                self.event(out, "response.output_item.added", ItemBody { output_index, item: reasoning });
                let part = Part { part: summary("") };
                self.part(out, &item, "response.reasoning_summary_part.added", part);
            }
        }
        item
    }

    fn append(&mut self, out: &mut BytesMut, kind: ItemKind, text: &str) {
        let mut item = self.open(out, kind);
        let (event, logprobs) = match kind {
            ItemKind::Message => ("response.output_text.delta", Some([])),
            ItemKind::Reasoning => ("response.reasoning_summary_text.delta", None),
        };
        for delta in pieces(text) {
            self.part(out, &item, event, TextDelta { delta, logprobs });
        }
        item.text.push_str(text);
        self.open = Some(item);
    }

    fn close(
        &mut self,
        out: &mut BytesMut,
        item: &OpenItem,
        status: &'static str,
        phase: Option<&'static str>,
    ) {
        let (output_index, text) = (item.index, item.text.as_str());
        match item.kind {
            ItemKind::Message => {
                let whole = WholeText { text, logprobs: Some([]) };
                self.part(out, item, "response.output_text.done", whole);
                let part = Part { part: TextPart::new(text) };
                self.part(out, item, "response.content_part.done", part);
                let message = Message::new(&item.id, status, Some(text)).in_phase(phase);
                self.event(out, "response.output_item.done", ItemBody { output_index, item: message });
            }
            ItemKind::Reasoning => {
                let whole = WholeText { text, logprobs: None };
                self.part(out, item, "response.reasoning_summary_text.done", whole);
                let part = Part { part: summary(text) };
                self.part(out, item, "response.reasoning_summary_part.done", part);
                let reasoning = reasoning(&item.id, status, Some(text));
                self.event(out, "response.output_item.done", ItemBody { output_index, item: reasoning });
            }
        }
    }
}

impl StreamWriter for ResponseWriter {
    fn begin(&mut self, out: &mut BytesMut) {
        self.response(out, "response.created", State::InProgress);
        self.response(out, "response.in_progress", State::InProgress);
    }

    fn show(&mut self, out: &mut BytesMut, shown: &Shown) {
        match shown {
            Shown::Reasoning(text) => self.append(out, ItemKind::Reasoning, text),
            Shown::Content(piece) => {
                let status = match piece.boundary {
                    Boundary::None => None,
                    Boundary::NextTurn => Some(COMPLETED),
                    Boundary::Withdrawn => Some(INCOMPLETE),
                };
                if let Some(status) = status
                    && let Some(earlier) = self.open.take_if(|item| item.kind == ItemKind::Message)
                {
                    self.close(out, &earlier, status, Some("commentary"));
                }
                self.append(out, ItemKind::Message, &piece.text);
            }
        }
    }

    fn end(&mut self, out: &mut BytesMut, answer: &TurnAnswer) {
        if let Some(error) = failure(answer) {
            if let Some(item) = self.open.take() {
                self.close(out, &item, INCOMPLETE, None);
            }
            self.response(out, "response.failed", State::Failed(answer, &error.object()));
            return;
        }
        // An answer without text is still a message.
        if self.messages == 0 {
            let item = self.open(out, ItemKind::Message);
            self.open = Some(item);
        }
        if let Some(item) = self.open.take() {
            self.close(out, &item, message_status(answer), Some("final_answer"));
        }
        let id = item_id(MESSAGE_PREFIX, self.head.handoff_id, self.messages.saturating_sub(1));
        let kind = if answer.is_cut { "response.incomplete" } else { "response.completed" };
        self.response(out, kind, State::Answered(answer, &id));
    }

    fn break_off(&mut self, out: &mut BytesMut, error: &ApiError) {
        named_event(out, ERROR_EVENT, &error.to_event_json(self.next_number));
    }
}

fn summary(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn reasoning(id: &str, status: &str, text: Option<&str>) -> Value {
    let summary: Vec<Value> = text.map(summary).into_iter().collect();
    json!({ "id": id, "type": "reasoning", "status": status, "summary": summary })
}

#[cfg(test)]
mod tests;
