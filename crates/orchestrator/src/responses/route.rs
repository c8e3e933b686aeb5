//! `POST /v1/responses`: reads the request and decides who answers it.
//!
//! P4, P14: the model id is exactly `cynodeai.pm` for the project manager; any other never reaches it.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::{Request, State as AppState},
    response::Response,
};
use bytes::BytesMut;
use contract::thread::{AnswerState, TurnAnswer};
use http::StatusCode;
use serde_json::{Map, Value};
use subjects::MODEL_ID;

use super::{
    object::{Echo, Head, ResponseObject, State, message_id},
    request::ResponseRequest,
    resolve,
    surface::ResponseSurface,
    writer::ResponseWriter,
};
use crate::{
    answering::{
        Boundary, Delivery, Piece, Shown, StreamWriter, ask, background_prompts,
        events::event_stream,
        fields::{is_set, model, parse_object},
    },
    body,
    caller::Caller,
    direct::Api,
    error::ApiError,
    respond,
    state::App,
    turns::NotBegun,
};

pub(crate) async fn create(
    AppState(app): AppState<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = body::read(&app, body).await?;
    let object = parse_object(&body)?;
    if model(&object)? != MODEL_ID {
        let model = model(&object)?.to_owned();
        return ask_directly(&app, &model, object).await;
    }
    let request = ResponseRequest::read(&object, app.config.chat.max_messages)?;
    let question = resolve::question(&app, &caller, &request).await?;
    let is_stream = matches!(request.delivery, Delivery::Stream | Delivery::DetachedStream);
    let form = background_prompts::Form { is_stream, may_choose_tools: false };
    if let Some(task) = background_prompts::recognize(&parts.headers, &question.messages, form)? {
        return match &app.config.chat.task_model {
            Some(model) => ask_directly(&app, model, object).await,
            None => {
                let text = background_prompts::answer(task, &question.messages);
                Ok(answer_by_rule(text, request.echo, is_stream))
            }
        };
    }
    let (delivery, surface) = (request.delivery, ResponseSurface(request.echo.clone()));
    match ask(&app, &caller, &parts.headers, &body, (question, delivery), surface).await {
        // The thread has gone on since it was looked at: the response begins a thread of its own.
        Err(NotBegun::Moved) => {
            let question = Box::pin(resolve::question(&app, &caller, &request)).await?;
            let surface = ResponseSurface(request.echo);
            let branched = ask(&app, &caller, &parts.headers, &body, (question, delivery), surface);
            Box::pin(branched).await.map_err(ApiError::from)
        }
        asked => asked.map_err(ApiError::from),
    }
}

async fn ask_directly(app: &App, model: &str, object: Map<String, Value>) -> Result<Response, ApiError> {
    if app.direct.models().any(|known| known == model) && is_set(&object, "background") {
        let why = "`background` is not supported for this model: its responses are not stored here.";
        return Err(ApiError::unsupported("background", why));
    }
    app.direct.complete(&app.limits, Api::Responses, model, object).await
}

/// Responds with a text that is not stored.
fn answer_by_rule(text: String, echo: Echo, is_stream: bool) -> Response {
    let head = Head::new(echo);
    let answer = TurnAnswer {
        state: AnswerState::Completed,
        text,
        error_code: None,
        is_cut: false,
        prompt_tokens: 0,
        completion_tokens: 0,
    };
    if !is_stream {
        let id = message_id(&head);
        return respond::json(StatusCode::OK, &ResponseObject::new(&head, State::Answered(&answer, &id)));
    }
    let mut writer = ResponseWriter::new(head);
    let mut out = BytesMut::new();
    writer.begin(&mut out);
    let piece = Piece { boundary: Boundary::None, text: answer.text.clone() };
    writer.show(&mut out, &Shown::Content(piece));
    writer.end(&mut out, &answer);
    event_stream(Body::from(out.freeze()))
}
