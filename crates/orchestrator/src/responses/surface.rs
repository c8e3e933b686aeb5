//! How `/v1/responses` shows turns.

use axum::response::{IntoResponse, Response};
use contract::thread::{Turn, TurnAnswer};
use http::StatusCode;
use subjects::HandoffId;

use super::{
    ID_PREFIX,
    object::{Echo, Head, ResponseObject, State, message_id},
    writer::ResponseWriter,
};
use crate::{
    answering::{Surface, failure, name_turn},
    respond::json,
};

#[derive(Clone, Debug, Default)]
pub(super) struct ResponseSurface(pub(super) Echo);

impl Surface for ResponseSurface {
    type Writer = ResponseWriter;

    fn path(&self, id: HandoffId) -> String {
        format!("/v1/responses/{ID_PREFIX}{id}")
    }

    fn in_progress(&self, turn: &Turn) -> Response {
        show(turn, self.0.clone(), State::Queued)
    }

    /// A failure is an error of the request, so that every client notices it.
    fn answered(&self, turn: &Turn, answer: &TurnAnswer) -> Response {
        match failure(answer) {
            Some(error) => {
                let mut response = error.into_response();
                name_turn(response.headers_mut(), turn);
                response
            }
            None => show_answer(turn, answer, self.0.clone()),
        }
    }

    fn into_writer(self, turn: &Turn) -> ResponseWriter {
        ResponseWriter::new(Head::of(turn, self.0))
    }
}

/// Responds with the response as it is, also if it failed.
pub(super) fn show_state(turn: &Turn) -> Response {
    match &turn.answer {
        Some(answer) => show_answer(turn, answer, Echo::of(turn)),
        None => show(turn, Echo::of(turn), State::InProgress),
    }
}

fn show_answer(turn: &Turn, answer: &TurnAnswer, echo: Echo) -> Response {
    let head = Head::of(turn, echo);
    let id = message_id(&head);
    match failure(answer) {
        Some(error) => respond(turn, &head, State::Failed(answer, &error.object())),
        None => respond(turn, &head, State::Answered(answer, &id)),
    }
}

fn show(turn: &Turn, echo: Echo, state: State<'_>) -> Response {
    respond(turn, &Head::of(turn, echo), state)
}

fn respond(turn: &Turn, head: &Head, state: State<'_>) -> Response {
    let mut response = json(StatusCode::OK, &ResponseObject::new(head, state));
    name_turn(response.headers_mut(), turn);
    response
}
