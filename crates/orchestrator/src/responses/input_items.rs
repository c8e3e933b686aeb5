//! `GET /v1/responses/{id}/input_items`: what a response was asked.
//!
//! While it is worked on these are all messages of its thread, afterwards those that were new.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};
use contract::thread::Turn;
use http::StatusCode;
use serde_json::{Value, json};
use subjects::ChatRole;

use super::stored::find;
use crate::{caller::Caller, error::ApiError, path_id::PathId, query, respond, state::App};

pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    RawQuery(text): RawQuery,
) -> Result<Response, ApiError> {
    let (limit, after) = query::page(text.as_deref())?;
    let is_ascending = match query::parse(text.as_deref()).get("order").map(AsRef::as_ref) {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(ApiError::invalid("order", "`order` is `asc` or `desc`.")),
    };
    let turn = find(&app, &caller, &id).await?;
    let mut items = items(&turn);
    if is_ascending {
        items.reverse();
    }
    if let Some(after) = after {
        let at = items
            .iter()
            .position(|item| item["id"] == *after)
            .ok_or_else(|| ApiError::invalid("after", "`after` is the id of an item of this response."))?;
        items.drain(..=at);
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first_id, last_id) = (id(items.first()), id(items.last()));
    let list = json!({ "object": "list", "data": items, "first_id": first_id, "last_id": last_id,
                       "has_more": has_more });
    Ok(respond::json(StatusCode::OK, &list))
}

/// Returns the messages of a turn, the last first. They are numbered from the last, so that their ids stay
/// the same when those before are left out.
fn items(turn: &Turn) -> Vec<Value> {
    let items = turn.messages.iter().rev().enumerate().map(|(number, message)| {
        let (role, part) = match message.role {
            ChatRole::User => ("user", "input_text"),
            ChatRole::System => ("system", "input_text"),
            ChatRole::Assistant => ("assistant", "output_text"),
        };
        let mut part = json!({ "type": part, "text": message.content });
        if message.role == ChatRole::Assistant {
            part["annotations"] = json!([]);
        }
        let id = format!("in_{}_{number}", turn.handoff_id);
        json!({ "id": id, "type": "message", "role": role, "status": "completed", "content": [part] })
    });
    items.collect()
}
