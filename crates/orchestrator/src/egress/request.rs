//! The body of a request: which model it asks for, what it may use, and how it is passed on.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use contract::egress::MAX_MODEL_BYTES;
use http::StatusCode;
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::time::timeout;

use super::{
    paths::{Endpoint, Target},
    provider::Provider,
    reservation::{self, Expected, LIMITS},
    unique::Unique,
    usage::{BYTES_PER_TOKEN, Tokens},
};
use crate::error::ApiError;

/// Typical size of a reply if the request does not limit it.
const USUAL_COMPLETION_TOKENS: u64 = 1_024;

/// A request that may be made.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) body: Option<Bytes>,
    /// `None` if the request is not about one model.
    pub(super) model: Option<String>,
    pub(super) expected: Expected,
}

/// The members of a body. Their values are passed on as they are written.
type Members<'b> = BTreeMap<Cow<'b, str>, &'b RawValue>;

/// Limits of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    pub(super) bytes: usize,
    /// How long it may take to arrive.
    pub(super) time: Duration,
}

/// Reads the body and checks the model that it names.
pub(super) async fn prepare(
    limits: BodyLimits,
    target: &Target<'_>,
    provider: &Provider,
    body: Body,
) -> Result<Prepared, ApiError> {
    if target.endpoint == Endpoint::Models {
        return Ok(Prepared { body: None, model: None, expected: Expected::default() });
    }
    let body = read(limits, body).await?;
    prepare_body(&body, target.endpoint, provider)
}

async fn read(limits: BodyLimits, body: Body) -> Result<Bytes, ApiError> {
    let max = limits.bytes;
    match timeout(limits.time, to_bytes(body, max)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("The body has more than {max} bytes, or broke off.");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message))
        }
        Err(_) => {
            let message = "The body did not arrive in time.";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

fn prepare_body(body: &[u8], endpoint: Endpoint, provider: &Provider) -> Result<Prepared, ApiError> {
    let mut members: Members<'_> = serde_json::from_slice(body)
        .map_err(|_| ApiError::invalid("body", "The body must be one JSON object."))?;
    let model = read_model(&members)?;
    if !provider.allows_model(&model) {
        let message = format!(
            "The model `{model}` of {} is not allowed; egress.providers lists the models that are.",
            provider.name()
        );
        let refused = ApiError::new(StatusCode::FORBIDDEN, "model_not_allowed", message);
        return Err(ApiError { param: Some("model".to_owned()), ..refused });
    }
    let mut expected = Expected { likely: estimate(&members, body.len(), endpoint), most: None };
    let usage_options = usage_options(&members).filter(|_| {
        let is_stream = read_member::<bool>(&members, "stream") == Some(true);
        is_stream && endpoint == Endpoint::ChatCompletions && provider.includes_usage()
    });
    if let Some(options) = &usage_options {
        members.insert("stream_options".into(), options);
    }
    let limit;
    if provider.has_budget() {
        let reservation = reservation::reserve(&read_whole(body)?, body.len(), endpoint, provider)?;
        expected.most = Some(reservation.most);
        if let Some((name, tokens)) = reservation.limit {
            limit = to_raw_value(&tokens).map_err(|_| ApiError::invalid(name, "The limit is no number."))?;
            members.retain(|name, _| !LIMITS.contains(&name.as_ref()));
            members.insert(name.into(), &limit);
        }
    }
    // Written anew, so that the provider reads the members that were checked: a name may have come twice.
    let body = subjects::encode_json(&members);
    Ok(Prepared { body: Some(body.into()), model: Some(model), expected })
}

/// Reads all of a body, so that all of it can be checked. What is checked is what the provider reads, because
/// no name occurs twice.
fn read_whole(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let unreadable =
        |why: String| ApiError::invalid("body", format!("The body cannot be checked for the budget: {why}."));
    match serde_json::from_slice(body) {
        Ok(Unique(Value::Object(members))) => Ok(members),
        Ok(_) => Err(unreadable("it is no object".to_owned())),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Returns the model that a request asks for.
fn read_model(members: &Members<'_>) -> Result<String, ApiError> {
    let model = read_member::<String>(members, "model").filter(|model| !model.trim().is_empty());
    let model = model.ok_or_else(|| ApiError::invalid("model", "`model` must name a model."))?;
    if model.len() > MAX_MODEL_BYTES || model.contains(char::is_control) {
        let message =
            format!("`model` must have at most {MAX_MODEL_BYTES} bytes, and no control characters.");
        return Err(ApiError::invalid("model", message));
    }
    Ok(model)
}

/// Returns about what a request uses.
fn estimate(members: &Members<'_>, body_bytes: usize, endpoint: Endpoint) -> Tokens {
    let prompt = u64::try_from(body_bytes).unwrap_or(u64::MAX) / BYTES_PER_TOKEN;
    let limit = LIMITS.iter().find_map(|name| read_member::<u64>(members, name));
    let choices = read_member::<u64>(members, "n").unwrap_or(1).max(1);
    let completion = match endpoint {
        Endpoint::Embeddings | Endpoint::Models => 0,
        _ => limit.unwrap_or(USUAL_COMPLETION_TOKENS).saturating_mul(choices),
    };
    Tokens { prompt, completion }
}

/// Returns a member if it is of the type.
fn read_member<T: serde::de::DeserializeOwned>(members: &Members<'_>, name: &str) -> Option<T> {
    members.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// Returns the options of a stream that reports its usage.
fn usage_options(members: &Members<'_>) -> Option<Box<RawValue>> {
    let mut options = read_member::<Value>(members, "stream_options").filter(Value::is_object);
    let options = options.get_or_insert_with(|| json!({}));
    options["include_usage"] = true.into();
    to_raw_value(options).ok()
}

#[cfg(test)]
mod tests;
