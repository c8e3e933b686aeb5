//! `GET /v1/models`: what a client may name as `model`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use serde::Serialize;
use subjects::MODEL_ID;

use crate::{error::ApiError, path_id::PathId, respond::json, state::App};

/// Neither the project manager nor a configured model has a date of creation; clients want one.
const CREATED: i64 = 1_767_225_600;

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

impl<'a> Model<'a> {
    fn new(id: &'a str) -> Self {
        Self { id, object: "model", created: CREATED, owned_by: "cynode" }
    }
}

fn ids(app: &App) -> impl Iterator<Item = &str> {
    std::iter::once(MODEL_ID).chain(app.direct.models())
}

pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &List { object: "list", data: ids(&app).map(Model::new).collect() })
}

pub(crate) async fn get(State(app): State<Arc<App>>, PathId(id): PathId) -> Result<Response, ApiError> {
    match ids(&app).find(|known| *known == id) {
        Some(known) => Ok(json(StatusCode::OK, &Model::new(known))),
        None => Err(ApiError::model_not_found(&id)),
    }
}
