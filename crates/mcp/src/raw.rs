//! What rmcp's types would lose of a server's messages, or deliver too late.
//!
//! rmcp reads a tool into a struct of its own and drops every field that it does not know; one tool that it cannot read
//! costs the whole list. So the list is looked at before rmcp sees it, and travels on in its own `_meta`.

use std::{borrow::Cow, fmt};

use rmcp::model::{
    CallToolResult, JsonRpcVersion2_0, ListToolsResult, ProgressNotificationParam, RequestId,
    ServerJsonRpcMessage, ServerResult, Tool,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::{failure::Failure, list::bad};

/// Where the list travels. What a server puts there itself is overwritten.
const KEY: &str = "dev.cynode/raw-tools";
const SIZE: &str = "dev.cynode/raw-bytes";

/// Sees a server's messages in the order in which they came. rmcp handles each notification in a task of its own, so
/// that the last word on progress may come after the result.
pub trait Tap: fmt::Debug + Send + Sync {
    fn progress(&self, progress: ProgressNotificationParam);

    /// The server says so beside an answer that rmcp does not see.
    fn tools_changed(&self);
}

/// Reads the answer to a tool call: straight into what it should be. By way of rmcp's union of everything that a server
/// may say it takes several times as long, and is copied twice.
pub fn read_call(message: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
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

/// Reads the answer to `tools/list` so that `take` finds the tools as they were written.
pub fn read_list(message: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    let mut read: Value = serde_json::from_slice(message)?;
    keep(&mut read, message.len());
    serde_json::from_value(read)
}

/// What is left for rmcp of an event in a stream of a server. Progress goes to the tap, logs go nowhere, and what may be
/// a list of tools is prepared for [`take`].
pub(crate) fn sift(data: String, tap: &dyn Tap, may_list: bool) -> Option<String> {
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
        None if may_list => Some(kept(&data).unwrap_or(data)),
        _ => Some(data),
    }
}

fn kept(data: &str) -> Option<String> {
    let mut read: Value = serde_json::from_str(data).ok()?;
    keep(&mut read, data.len()).then(|| read.to_string())
}

/// Takes the tools out of a page, as they were written, and the size of the message that brought them.
pub(crate) fn take(page: &mut ListToolsResult) -> Result<(Vec<Map<String, Value>>, usize), Failure> {
    let mut meta = page.meta.take().unwrap_or_default().0;
    let size = meta.remove(SIZE).and_then(|size| size.as_u64()).and_then(|size| usize::try_from(size).ok());
    let (Some(Value::Array(tools)), Some(size)) = (meta.remove(KEY), size) else {
        return Err(bad("the list of tools is not a list".to_owned()));
    };
    let object = |tool| match tool {
        Value::Object(tool) => Ok(tool),
        _ => Err(bad("a tool in the list is not an object".to_owned())),
    };
    Ok((tools.into_iter().map(object).collect::<Result<_, _>>()?, size))
}

/// Whether it is a list of tools.
fn keep(message: &mut Value, size: usize) -> bool {
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
    struct Nobody;

    impl Tap for Nobody {
        fn progress(&self, _progress: ProgressNotificationParam) {}

        fn tools_changed(&self) {}
    }

    /// Both ways of reading must come to the same.
    fn check(message: &Value) {
        let text = message.to_string();
        let straight = read_call(text.as_bytes()).map_err(|error| error.to_string());
        let roundabout =
            serde_json::from_str::<ServerJsonRpcMessage>(&text).map_err(|error| error.to_string());
        assert_eq!(format!("{straight:?}"), format!("{roundabout:?}"), "{text}");
    }

    #[test]
    fn an_answer_to_a_call_is_read_as_rmcp_reads_it() {
        let results = [
            json!({"content": [{"type": "text", "text": "fine", "annotations": {"priority": 0.5}}]}),
            json!({"content": [], "structuredContent": null, "isError": true, "_meta": {"a": 1}}),
            json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "resultType": "complete"}),
            json!({"resultType": "input_required", "requestState": "s"}),
            json!({"unheard": "of"}),
        ];
        for result in results {
            check(&json!({"jsonrpc": "2.0", "id": 7, "result": result}));
        }
        check(&json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no"}}));
        check(
            &json!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}, "error": {"code": 1, "message": ""}}),
        );
        check(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
        check(&json!({"jsonrpc": "1.0", "id": 7, "result": {"content": []}}));
        check(&json!("no message"));
    }

    #[test]
    fn what_is_no_list_passes_untouched() {
        for data in [r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#, "not JSON", ""] {
            assert_eq!(sift(data.to_owned(), &Nobody, true).as_deref(), Some(data));
        }
    }
}
