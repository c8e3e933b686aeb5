//! Parses server messages where rmcp would lose information or deliver it too late.
//!
//! rmcp drops every field of a tool that it does not know, and one tool that it cannot parse fails the whole
//! list. The raw tools are therefore copied into the `_meta` of the list before rmcp parses it.

use std::{borrow::Cow, fmt};

use rmcp::model::{
    CallToolResult, JsonRpcVersion2_0, ProgressNotificationParam, RequestId, ServerJsonRpcMessage,
    ServerResult, Tool,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

/// The `_meta` key of the raw tools. A value that the server put there is overwritten.
pub(crate) const KEY: &str = "dev.cynode/raw-tools";
/// The `_meta` key of the size of the message in bytes.
pub(crate) const SIZE: &str = "dev.cynode/raw-bytes";

/// Receives a server's notifications in order. rmcp handles each notification in a separate task, so that
/// progress could arrive after the result.
pub trait Tap: fmt::Debug + Send + Sync {
    fn progress(&self, progress: ProgressNotificationParam);

    /// The list of tools has changed. Called for notifications in the stream of a direct call, which rmcp
    /// does not see.
    fn tools_changed(&self);
}

/// Parses the response to a tool call directly as `CallToolResult`. rmcp's untagged union of all results
/// takes several times as long and copies the content twice. Other messages are parsed as rmcp does.
pub fn parse_call_response(message: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "jsonrpc")]
        _jsonrpc: JsonRpcVersion2_0,
        id: RequestId,
        result: CallToolResult,
        error: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    match serde_json::from_slice(message) {
        Ok(Answer { id, result, error: None, method: None, .. }) => {
            Ok(ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), id))
        }
        _ => serde_json::from_slice(message),
    }
}

/// Parses the response to `tools/list` and embeds the raw tools for [`crate::raw_tools`].
pub fn parse_list_response(message: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    let mut read: Value = serde_json::from_slice(message)?;
    embed_raw_tools(&mut read, message.len());
    serde_json::from_value(read)
}

/// Filters the data of a server-sent event and returns what rmcp is to see. Progress goes to the tap, log
/// messages are dropped, and a list of tools is prepared for [`crate::raw_tools`].
pub(crate) fn filter_event(data: String, tap: &dyn Tap, may_list: bool) -> Option<String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Notification {
        params: ProgressNotificationParam,
    }
    let head = serde_json::from_str::<Head<'_>>(&data).ok();
    match head.and_then(|head| head.method).as_deref() {
        Some("notifications/progress") => {
            if let Ok(notification) = serde_json::from_str::<Notification>(&data) {
                tap.progress(notification.params);
            }
            None
        }
        Some("notifications/message") => None,
        None if may_list => Some(with_raw_tools(&data).unwrap_or(data)),
        _ => Some(data),
    }
}

fn with_raw_tools(data: &str) -> Option<String> {
    let mut read: Value = serde_json::from_str(data).ok()?;
    embed_raw_tools(&mut read, data.len()).then(|| read.to_string())
}

/// Copies the raw tools of a list into its `_meta` and removes those that rmcp cannot parse. Returns `false`
/// if the message is not a list of tools.
fn embed_raw_tools(message: &mut Value, size: usize) -> bool {
    let Some(result) = message.get_mut("result").and_then(Value::as_object_mut) else { return false };
    let Some(Value::Array(tools)) = result.get_mut("tools") else { return false };
    let raw = Value::Array(tools.clone());
    tools.retain(|tool| Tool::deserialize(tool).is_ok());
    let mut meta = match result.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    meta.insert(KEY.to_owned(), raw);
    meta.insert(SIZE.to_owned(), size.into());
    result.insert("_meta".to_owned(), Value::Object(meta));
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default)]
    struct IgnoringTap;

    impl Tap for IgnoringTap {
        fn progress(&self, _progress: ProgressNotificationParam) {}

        fn tools_changed(&self) {}
    }

    /// Checks that both ways of parsing give the same result.
    fn check(message: &Value) {
        let text = message.to_string();
        let straight = parse_call_response(text.as_bytes()).map_err(|error| error.to_string());
        let roundabout =
            serde_json::from_str::<ServerJsonRpcMessage>(&text).map_err(|error| error.to_string());
        assert_eq!(format!("{straight:?}"), format!("{roundabout:?}"), "{text}");
    }

    #[test]
    fn a_call_response_is_parsed_as_rmcp_parses_it() {
        let results = [
            json!({"content": [{"type": "text", "text": "fine", "annotations": {"priority": 0.5}}]}),
            json!({"content": [], "structuredContent": null, "isError": true, "_meta": {"a": 1}}),
            json!({
                "content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
                "resultType": "complete",
            }),
            json!({"resultType": "input_required", "requestState": "s"}),
            json!({"unheard": "of"}),
        ];
        for result in results {
            check(&json!({"jsonrpc": "2.0", "id": 7, "result": result}));
        }
        check(&json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no"}}));
        check(&json!({
            "jsonrpc": "2.0", "id": 7, "result": {"content": []}, "error": {"code": 1, "message": ""},
        }));
        check(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
        check(&json!({"jsonrpc": "1.0", "id": 7, "result": {"content": []}}));
        check(&json!("no message"));
    }

    #[test]
    fn an_event_that_is_not_a_list_is_unchanged() {
        for data in [r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#, "not JSON", ""] {
            assert_eq!(filter_event(data.to_owned(), &IgnoringTap, true).as_deref(), Some(data));
        }
    }
}
