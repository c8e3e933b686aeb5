//! Asks the project manager and answers with its turn, whatever the API of the client.
//!
//! - `fields`: reads what requests have in common, and replaces secrets in it
//! - `background_prompts`: what front ends ask for themselves, such as titles; never a handoff
//! - `ask`: begins the turn of a request and waits for it as the client wants
//! - `stream`, `plain`: wait for the answer; `progress`, `draft`, `live_text`: what a stream shows before it
//! - `events`: how streams are written; `failure`: why a turn has no answer
//! - `extension`: what objects have besides OpenAI's fields
//! - `stored`: finds and cancels turns by id

mod ask;
pub(crate) mod background_prompts;
mod draft;
pub(crate) mod events;
mod extension;
mod failure;
pub(crate) mod fields;
mod live_text;
mod plain;
mod progress;
pub(crate) mod stored;
mod stream;

use axum::response::Response;
use bytes::BytesMut;
use contract::thread::{Turn, TurnAnswer};
use subjects::HandoffId;

use crate::error::ApiError;
pub(crate) use ask::{Delivery, Question, Thread, ask, name_turn};
pub(crate) use extension::Extension;
pub(crate) use failure::failure;
pub(crate) use live_text::{Boundary, Piece};
pub(crate) use progress::Shown;

/// How an API of clients shows turns.
pub(crate) trait Surface: Send + 'static {
    type Writer: StreamWriter + Send + 'static;

    /// Returns where the answer of a turn can be fetched.
    fn path(&self, id: HandoffId) -> String;

    /// Returns the response to a turn that is worked on.
    fn in_progress(&self, turn: &Turn) -> Response;

    /// Returns the response to an answered turn, also if it failed.
    fn answered(&self, turn: &Turn, answer: &TurnAnswer) -> Response;

    /// Returns what writes the stream of a turn.
    fn into_writer(self, turn: &Turn) -> Self::Writer;
}

/// Writes a stream, in this order: the beginning, what is shown, and the end or an error.
pub(crate) trait StreamWriter {
    fn begin(&mut self, out: &mut BytesMut);

    fn show(&mut self, out: &mut BytesMut, shown: &Shown);

    /// Ends the stream of an answered turn, also if it failed. Its content was shown before.
    fn end(&mut self, out: &mut BytesMut, answer: &TurnAnswer);

    /// Ends a stream whose answer is not known.
    fn break_off(&mut self, out: &mut BytesMut, error: &ApiError);
}
