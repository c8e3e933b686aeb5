//! `POST /v1/chat/completions`: reads the request and decides who answers it.
//!
//! P4, P14: the model id is exactly `cynodeai.pm` for the project manager; any other never reaches it.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::BytesMut;
use http::StatusCode;
use subjects::MODEL_ID;

use super::{
    completion::{ChunkWriter, Completion, CompletionId, Usage},
    request::ChatRequest,
    surface::ChatSurface,
};
use crate::{
    answering::{
        Delivery, Thread, ask, background_prompts,
        events::event_stream,
        fields::{model, parse_object},
    },
    body,
    caller::Caller,
    direct::Api,
    error::ApiError,
    respond,
    state::App,
};

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = body::read(&app, body).await?;
    let object = parse_object(&body)?;
    if model(&object)? != MODEL_ID {
        let model = model(&object)?.to_owned();
        return app.direct.complete(&app.limits, Api::ChatCompletions, &model, object).await;
    }
    let request = ChatRequest::read(&object, app.config.chat.max_messages)?;
    let messages = &request.question.messages;
    let may_choose_tools = request.question.thread == Thread::Any;
    let form = background_prompts::Form { is_stream: request.stream, may_choose_tools };
    if let Some(task) = background_prompts::recognize(&parts.headers, messages, form)? {
        return match &app.config.chat.task_model {
            Some(model) => app.direct.complete(&app.limits, Api::ChatCompletions, model, object).await,
            None => Ok(answer_by_rule(&request, &background_prompts::answer(task, messages))),
        };
    }
    let delivery = if request.stream { Delivery::Stream } else { Delivery::Plain };
    let surface = ChatSurface { include_usage: request.include_usage };
    let question = (request.question, delivery);
    ask(&app, &caller, &parts.headers, &body, question, surface).await.map_err(ApiError::from)
}

/// Responds with a text that is not stored.
fn answer_by_rule(request: &ChatRequest, text: &str) -> Response {
    let id = CompletionId::new(&request.model);
    if !request.stream {
        return respond::json(StatusCode::OK, &Completion::text(&id, text, "stop"));
    }
    let writer = ChunkWriter { id, include_usage: request.include_usage };
    let mut out = BytesMut::new();
    writer.role(&mut out);
    writer.content(&mut out, text);
    writer.finish(&mut out, "stop", Usage::new(0, 0));
    event_stream(Body::from(out.freeze()))
}
