//! `GET /v1/threads/{id}/export`: a whole thread as JSON, or as Markdown with `?format=markdown`.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use contract::thread::{Get, ListMessages};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use serde_json::json;
use subjects::ChatRole;

use super::{
    call,
    objects::{MessageObject, ThreadObject},
};
use crate::{
    caller::Caller,
    error::ApiError,
    path_id::PathId,
    query::{self, MAX_LIMIT},
    respond,
    state::App,
};

/// More text than this is not exported at once: a thread can grow without a limit, memory cannot.
const MAX_EXPORT_BYTES: usize = 32 << 20;

pub(crate) async fn export(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(thread): PathId,
    RawQuery(text): RawQuery,
) -> Result<Response, ApiError> {
    let is_markdown = match query::parse(text.as_deref()).get("format").map(AsRef::as_ref) {
        None | Some("json") => false,
        Some("markdown") => true,
        Some(_) => return Err(ApiError::invalid("format", "`format` is `json` or `markdown`.")),
    };
    let get = Get { user_id: caller.user.clone(), thread: thread.clone() };
    let found = ThreadObject::from(call(&app, &thread, &get).await?);
    let mut messages: Vec<MessageObject> = Vec::new();
    let (mut cursor, mut bytes) = (None, 0);
    loop {
        let user_id = caller.user.clone();
        let list = ListMessages { user_id, thread: found.id.clone(), limit: Some(MAX_LIMIT), cursor };
        let page = call(&app, &thread, &list).await?;
        bytes += page.items.iter().map(|message| message.content.len()).sum::<usize>();
        messages.extend(page.items.into_iter().map(MessageObject::from));
        if bytes > MAX_EXPORT_BYTES {
            let message = "The thread is too large to be exported at once; read it page by page.";
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "thread_too_large", message));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if is_markdown {
        return Ok(download(markdown(&found, &messages), "text/markdown; charset=utf-8", "thread.md"));
    }
    Ok(respond::json(StatusCode::OK, &json!({ "thread": found, "messages": messages })))
}

fn markdown(thread: &ThreadObject, messages: &[MessageObject]) -> String {
    let mut out = format!("# {}\n", thread.title);
    for message in messages {
        let who = match message.role {
            ChatRole::System => "System",
            ChatRole::User => "User",
            ChatRole::Assistant => "Project manager",
        };
        out.push_str(&format!("\n## {who}\n\n{}\n", message.content.trim_end()));
    }
    out
}

fn download(text: String, kind: &'static str, file: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(kind)), (CONTENT_DISPOSITION, disposition(file))];
    (StatusCode::OK, headers, text).into_response()
}

fn disposition(file: &'static str) -> HeaderValue {
    let value = HeaderValue::try_from(format!("attachment; filename=\"{file}\""));
    value.unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}
