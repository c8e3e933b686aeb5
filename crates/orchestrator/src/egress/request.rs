//! The body of a request: which model it asks for, what it may use, and how it is passed on.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use contract::egress::MAX_MODEL_BYTES;
use http::StatusCode;
use serde_json::{Value, json, value::RawValue};
use tokio::time::timeout;

use super::{
    paths::{Endpoint, Target},
    provider::Provider,
    usage::Tokens,
};
use crate::error::ApiError;

/// What a reply is expected to have if the request does not limit it.
const USUAL_COMPLETION_TOKENS: u64 = 1_024;
const BYTES_PER_TOKEN: usize = 4;
/// Members that limit the reply, by their names in the protocols.
const LIMITS: [&str; 3] = ["max_completion_tokens", "max_tokens", "max_output_tokens"];

/// A request that may be made.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) body: Option<Bytes>,
    /// `None` if the request is not about one model.
    pub(super) model: Option<String>,
    pub(super) expected: Tokens,
}

/// The members of a body. Their values are passed on as they are written.
type Members<'b> = BTreeMap<Cow<'b, str>, &'b RawValue>;

/// What a body may have.
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
        return Ok(Prepared { body: None, model: None, expected: Tokens::default() });
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
    let model: Option<String> = read_member(&members, "model");
    let model = model.filter(|model| !model.trim().is_empty() && model.len() <= MAX_MODEL_BYTES);
    let model = model.ok_or_else(|| ApiError::invalid("model", "`model` must name a model."))?;
    if !provider.allows_model(&model) {
        let message = format!(
            "The model `{model}` of {} is not allowed; egress.providers lists the models that are.",
            provider.name()
        );
        let refused = ApiError::new(StatusCode::FORBIDDEN, "model_not_allowed", message);
        return Err(ApiError { param: Some("model".to_owned()), ..refused });
    }
    let limit = LIMITS.iter().find_map(|name| read_member::<u64>(&members, name));
    let choices = read_member::<u64>(&members, "n").unwrap_or(1).max(1);
    let completion = match endpoint {
        Endpoint::Embeddings | Endpoint::Models => 0,
        _ => limit.unwrap_or(USUAL_COMPLETION_TOKENS).saturating_mul(choices),
    };
    let prompt = u64::try_from(body.len() / BYTES_PER_TOKEN).unwrap_or(u64::MAX);
    let usage_options = usage_options(&members).filter(|_| {
        let is_stream = read_member::<bool>(&members, "stream") == Some(true);
        is_stream && endpoint == Endpoint::ChatCompletions && provider.includes_usage()
    });
    if let Some(options) = &usage_options {
        members.insert("stream_options".into(), options);
    }
    // Written anew, so that the provider reads the members that were checked: a name may have come twice.
    let body = subjects::encode_json(&members);
    Ok(Prepared { body: Some(body.into()), model: Some(model), expected: Tokens { prompt, completion } })
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
    serde_json::value::to_raw_value(options).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn provider(models: &[&str], include_usage: bool) -> Provider {
        Provider::new(&config::Provider {
            name: "openai".into(),
            url: "http://127.0.0.1:1/v1".parse().unwrap(),
            key_file: None,
            auth: config::Auth::Bearer,
            models: models.iter().map(|&model| model.to_owned()).collect(),
            prices: config::Prices::default(),
            limits: contract::egress::Limits::default(),
            include_usage,
        })
        .unwrap()
    }

    fn prepared(body: &str, endpoint: Endpoint, provider: &Provider) -> Result<(String, Tokens), String> {
        match prepare_body(body.as_bytes(), endpoint, provider) {
            Ok(it) => Ok((String::from_utf8(it.body.unwrap().to_vec()).unwrap(), it.expected)),
            Err(error) => Err(error.code.into_owned()),
        }
    }

    #[test]
    fn provider_reads_the_model_that_was_checked() {
        let provider = provider(&["gpt-*", "o3"], false);
        let chat = |body: &str| prepared(body, Endpoint::ChatCompletions, &provider);
        let (body, expected) =
            chat(r#"{"model":"gpt-5","messages":[{"b":1,"a":2}],"max_tokens":9,"n":2}"#).unwrap();
        assert_eq!(body, r#"{"max_tokens":9,"messages":[{"b":1,"a":2}],"model":"gpt-5","n":2}"#);
        assert_eq!(expected.completion, 18);
        assert_eq!(chat(r#"{"model":"gpt-5","model":"secret-model"}"#), Err("model_not_allowed".into()));
        assert_eq!(chat(r#"{"model":"secret-model","model":"o3"}"#).unwrap().0, r#"{"model":"o3"}"#);
        assert_eq!(chat(r#"{"m\u006fdel":"secret-model"}"#), Err("model_not_allowed".into()));
        for wrong in ["", "[]", "{", r#"{"model":7}"#, r#"{"model":" "}"#, r#"{"messages":[]}"#] {
            assert_eq!(chat(wrong), Err("invalid_value".into()), "{wrong}");
        }
    }

    #[test]
    fn streams_of_chat_completions_are_asked_for_their_usage() {
        let (with, without) = (provider(&[], true), provider(&[], false));
        let body = r#"{"model":"m","stream":true,"stream_options":{"include_obfuscation":false}}"#;
        let sent = prepared(body, Endpoint::ChatCompletions, &with).unwrap().0;
        let options = r#""stream_options":{"include_obfuscation":false,"include_usage":true}"#;
        assert!(sent.contains(options), "{sent}");
        for (endpoint, provider) in [(Endpoint::Responses, &with), (Endpoint::ChatCompletions, &without)] {
            let sent = prepared(r#"{"model":"m","stream":true}"#, endpoint, provider).unwrap().0;
            assert_eq!(sent, r#"{"model":"m","stream":true}"#);
        }
        let plain = prepared(r#"{"model":"m"}"#, Endpoint::ChatCompletions, &with).unwrap();
        assert_eq!(plain.0, r#"{"model":"m"}"#);
        assert_eq!(plain.1.completion, USUAL_COMPLETION_TOKENS);
        let embedding = prepared(r#"{"model":"m"}"#, Endpoint::Embeddings, &with).unwrap();
        assert_eq!(embedding.1.completion, 0);
    }
}
