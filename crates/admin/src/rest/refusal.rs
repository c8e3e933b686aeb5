//! Error responses as JSON.

use api::{ErrorBody, ErrorDetails};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};
use utoipa::IntoResponses;

use crate::Error;

/// An error response: a status and a JSON body with code, message and field.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let error = ErrorDetails { code: code.to_owned(), message: message.into(), field: None };
        Self { status, body: ErrorBody { error } }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = match &error {
            Error::Invalid { message, .. } => message.clone(),
            other => other.to_string(),
        };
        let (code, field) = (error.code().to_owned(), error.field().map(str::to_owned));
        Self { status: error.status(), body: ErrorBody { error: ErrorDetails { code, message, field } } }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"cynode-admin\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// The error responses of every operation, for the OpenAPI document.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its attributes are used")]
pub(super) enum Refusals {
    /// The body or the query parameters cannot be parsed.
    #[response(status = 400)]
    Unreadable(ErrorBody),
    /// No token, or not an admin or user token.
    #[response(status = 401)]
    Unauthenticated(ErrorBody),
    /// The token does not permit this operation.
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// Not found.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The current state does not permit the operation.
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not JSON.
    #[response(status = 415)]
    NotJson(ErrorBody),
    /// A field is invalid.
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// An upstream server or NATS did not respond.
    #[response(status = 502)]
    Unreachable(ErrorBody),
    /// The store is not available.
    #[response(status = 503)]
    Unavailable(ErrorBody),
}
