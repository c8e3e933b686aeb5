use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use crate::admin::Error;

/// What whoever asked is told instead of an answer.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: ErrorDetails,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ErrorDetails {
    /// For programs; it does not change.
    code: &'static str,
    /// For people.
    message: String,
    /// What was filled in wrongly.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl Refusal {
    pub(in crate::admin) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let error = ErrorDetails { code, message: message.into(), field: None };
        Self { status, body: ErrorBody { error } }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = match &error {
            Error::Invalid { message, .. } => message.clone(),
            other => other.to_string(),
        };
        let details = ErrorDetails { code: error.code(), message, field: error.field() };
        Self { status: error.status(), body: ErrorBody { error: details } }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"cynode-admin\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }
}

/// What every operation may answer instead, for the document.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "the document is made of its attributes")]
pub(super) enum Refused {
    /// The body, or what stands behind the `?`, cannot be read.
    #[response(status = 400)]
    Unreadable(ErrorBody),
    /// No token, or one that administers nothing.
    #[response(status = 401)]
    Unauthenticated(ErrorBody),
    /// The token is good, but not for this.
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such thing.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// What is there stands against it.
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not JSON.
    #[response(status = 415)]
    NotJson(ErrorBody),
    /// A field is filled in wrongly.
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// A server behind the gateway did not answer as it should.
    #[response(status = 502)]
    Unreachable(ErrorBody),
    /// The store cannot be used at the moment.
    #[response(status = 503)]
    Unavailable(ErrorBody),
}
