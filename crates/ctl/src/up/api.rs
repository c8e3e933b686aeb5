//! The OpenAI-compatible API of the stack, as its clients see it.

use std::time::Duration;

use serde_json::{Value, json};
use subjects::MODEL_ID;

use super::config::StackConfig;
use crate::error::Error;

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns whether the API lists its models to the key of the stack.
pub(super) async fn probe(config: &StackConfig) -> bool {
    let Ok(request) = request(config, reqwest::Method::GET, "models") else { return false };
    let response = request.timeout(PROBE_TIMEOUT).send().await;
    response.is_ok_and(|response| response.status().is_success())
}

/// Asks the project manager over the API, and returns the text of its answer.
pub(super) async fn ask(config: &StackConfig, text: &str) -> Result<String, Error> {
    let body = json!({ "model": MODEL_ID, "messages": [{ "role": "user", "content": text }] });
    let request = request(config, reqwest::Method::POST, "chat/completions")?
        .header("content-type", "application/json")
        .body(body.to_string());
    let unreachable =
        |error: reqwest::Error| Error::GatewayUnreachable(config.api_url(), error.without_url());
    let response = request.timeout(ANSWER_TIMEOUT).send().await.map_err(unreachable)?;
    let body = response.text().await.map_err(unreachable)?;
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    let text = answer.pointer("/choices/0/message/content").and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| Error::Tour(format!("the API did not answer the chat: {body}")))
}

fn request(
    config: &StackConfig,
    method: reqwest::Method,
    path: &str,
) -> Result<reqwest::RequestBuilder, Error> {
    let file = config.api_key();
    let key = std::fs::read_to_string(&file).map_err(|error| Error::File(file, error))?;
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.map_err(|error| Error::GatewayUnreachable(config.api_url(), error))?;
    Ok(client.request(method, format!("{}/{path}", config.api_url())).bearer_auth(key.trim()))
}
