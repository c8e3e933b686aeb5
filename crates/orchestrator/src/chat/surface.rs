//! How chat completions show turns.

use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use contract::thread::{Turn, TurnAnswer};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use subjects::HandoffId;

use super::completion::{ChunkWriter, Completion, CompletionId, Usage, finish_reason};
use crate::{
    answering::{Boundary, Shown, StreamWriter, Surface, events::event, failure, name_turn},
    error::ApiError,
    respond::json,
};

/// Prefix of the id of a completion; the id of its handoff follows.
pub(super) const ID_PREFIX: &str = "chatcmpl-";
/// Separates text that turned out not to be the answer from the answer.
const WITHDRAWN: &str = "\n\n*(The text above was withdrawn. This is the answer:)*\n\n";
const BETWEEN_TURNS: &str = "\n\n";

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChatSurface {
    /// Whether a stream ends with a chunk of usage.
    pub(super) include_usage: bool,
}

impl Surface for ChatSurface {
    type Writer = ChunkWriter;

    fn path(&self, id: HandoffId) -> String {
        format!("/v1/chat/completions/{ID_PREFIX}{id}")
    }

    fn in_progress(&self, turn: &Turn) -> Response {
        let id = CompletionId::of(turn);
        let mut response = json(StatusCode::ACCEPTED, &Completion::in_progress(&id, turn));
        name_turn(response.headers_mut(), turn);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    fn answered(&self, turn: &Turn, answer: &TurnAnswer) -> Response {
        let id = CompletionId::of(turn);
        let mut response = match failure(answer) {
            Some(error) => error.into_response(),
            None => json(StatusCode::OK, &Completion::answered(&id, turn, answer)),
        };
        name_turn(response.headers_mut(), turn);
        response
    }

    fn into_writer(self, turn: &Turn) -> ChunkWriter {
        ChunkWriter { id: CompletionId::of(turn), include_usage: self.include_usage }
    }
}

impl StreamWriter for ChunkWriter {
    fn begin(&mut self, out: &mut BytesMut) {
        self.role(out);
    }

    fn show(&mut self, out: &mut BytesMut, shown: &Shown) {
        match shown {
            Shown::Content(piece) => match piece.boundary {
                Boundary::None => self.content(out, &piece.text),
                Boundary::NextTurn => self.content(out, &format!("{BETWEEN_TURNS}{}", piece.text)),
                Boundary::Withdrawn => self.content(out, &format!("{WITHDRAWN}{}", piece.text)),
            },
            Shown::Reasoning(text) => self.reasoning(out, text),
        }
    }

    fn end(&mut self, out: &mut BytesMut, answer: &TurnAnswer) {
        match failure(answer) {
            Some(error) => self.break_off(out, &error),
            None => self.finish(out, finish_reason(answer), Usage::of(answer)),
        }
    }

    /// Without `[DONE]`: clients take a stream that ends with it for a success.
    fn break_off(&mut self, out: &mut BytesMut, error: &ApiError) {
        event(out, &error.to_json());
    }
}
