//! Errors in OpenAI's shape.

use std::{borrow::Cow, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Tells OpenAI's SDKs whether to repeat the request, whatever its status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The event with which a stream of `/v1/responses` breaks off.
pub(crate) const ERROR_EVENT: &str = "error";

/// Why a request is not answered as asked. Never contains text of a message or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: ErrorType,
    /// A stable code for programs.
    pub(crate) code: Cow<'static, str>,
    /// The field of the request that is wrong.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// `Some(false)`: a retry of the same request cannot succeed, although its status suggests it.
    pub(crate) should_retry: Option<bool>,
}

/// The `type` of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ErrorType {
    #[serde(rename = "invalid_request_error")]
    InvalidRequest,
    #[serde(rename = "authentication_error")]
    Authentication,
    #[serde(rename = "permission_error")]
    Permission,
    #[serde(rename = "not_found_error")]
    NotFound,
    #[serde(rename = "conflict_error")]
    Conflict,
    #[serde(rename = "rate_limit_error")]
    RateLimit,
    #[serde(rename = "server_error")]
    Server,
}

#[derive(Serialize)]
struct Body<'a> {
    error: ErrorObject<'a>,
}

/// The error alone, as it is part of other objects.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorObject<'a> {
    message: &'a str,
    r#type: ErrorType,
    param: Option<&'a str>,
    code: &'a str,
}

#[derive(Serialize)]
struct Event<'a> {
    r#type: &'static str,
    sequence_number: u64,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
    error: ErrorObject<'a>,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            kind: ErrorType::of(status),
            code: code.into(),
            param: None,
            message: message.into(),
            retry_after: None,
            should_retry: None,
        }
    }

    /// A field of the request is wrong.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let invalid = Self::new(StatusCode::BAD_REQUEST, "invalid_value", message);
        Self { param: Some(param.into()), ..invalid }
    }

    /// The request asks for something that is not offered here.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: "unsupported_value".into(), ..Self::invalid(param, message) }
    }

    pub(crate) fn model_not_found(model: &str) -> Self {
        let message = format!(
            "The model `{model}` does not exist or this key may not use it; GET /v1/models lists all."
        );
        let missing = Self::new(StatusCode::NOT_FOUND, "model_not_found", message);
        Self { kind: ErrorType::InvalidRequest, param: Some("model".to_owned()), ..missing }
    }

    /// Something that every request needs is away. Nothing is lost: the client may repeat the request.
    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let unavailable = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        unavailable.retry_in(Duration::from_secs(2))
    }

    pub(crate) fn retry_in(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// Marks that repeating the request cannot help.
    pub(crate) fn not_retryable(self) -> Self {
        Self { should_retry: Some(false), ..self }
    }

    pub(crate) fn object(&self) -> ErrorObject<'_> {
        ErrorObject {
            message: &self.message,
            r#type: self.kind,
            param: self.param.as_deref(),
            code: &self.code,
        }
    }

    /// Renders the body: `{"error": {"message", "type", "param", "code"}}`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        subjects::encode_json(&Body { error: self.object() })
    }

    /// Renders the event `error` of a stream of `/v1/responses`. It has the error twice: as OpenAI documents
    /// it, and as the field `error`, without which OpenAI's SDKs do not raise it.
    pub(crate) fn to_event_json(&self, sequence_number: u64) -> Vec<u8> {
        let (message, param, code) = (&*self.message, self.param.as_deref(), &*self.code);
        let r#type = ERROR_EVENT;
        subjects::encode_json(&Event { r#type, sequence_number, code, message, param, error: self.object() })
    }
}

impl ErrorType {
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Authentication,
            StatusCode::FORBIDDEN => Self::Permission,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::TOO_MANY_REQUESTS => Self::RateLimit,
            status if status.is_client_error() => Self::InvalidRequest,
            _ => Self::Server,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut response = (self.status, [(CONTENT_TYPE, json)], self.to_json()).into_response();
        let headers = response.headers_mut();
        if let Some(delay) = self.retry_after {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
            headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
        }
        if let Some(should_retry) = self.should_retry {
            let text = if should_retry { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(text));
        }
        response
    }
}

/// Makes a name from a path safe to repeat in an error.
pub(crate) fn printable(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(64).collect()
}
