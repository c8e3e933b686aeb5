//! What a server says of its models, asked without paying for a reply.

use serde_json::Value;

use super::profile::ServerFacts;

/// Reads the reply to `GET /models`. Names differ by server: llama.cpp has `meta`, vLLM `max_model_len`,
/// others `context_length`.
pub(super) fn read_models(reply: &Value, model: &str) -> ServerFacts {
    let models = reply.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_asked = |entry: &&Value| entry.get("id").and_then(Value::as_str) == Some(model);
    let entry = match models {
        [only] => Some(only),
        several => several.iter().find(is_asked),
    };
    let Some(entry) = entry else { return ServerFacts::default() };
    let number = |path: &str| entry.pointer(path).and_then(Value::as_u64);
    let context = ["/max_model_len", "/loaded_context_length", "/context_length", "/meta/n_ctx_train"];
    ServerFacts {
        context_tokens: context.iter().find_map(|path| number(path)).and_then(|it| it.try_into().ok()),
        parameters: number("/meta/n_params"),
    }
}

/// Reads the reply of llama.cpp to `GET /props`: the context of one conversation, which may be less than that
/// of the model.
pub(super) fn read_props(reply: &Value) -> Option<usize> {
    let context = reply.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
    context.and_then(|tokens| tokens.try_into().ok()).filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn context_and_size_are_read_from_servers_of_several_makers() {
        let facts = |entry: Value| read_models(&json!({ "data": [entry] }), "m");
        let llama = facts(json!({ "id": "m", "meta": { "n_ctx_train": 8_192, "n_params": 134_515_008 } }));
        let expected = ServerFacts { context_tokens: Some(8_192), parameters: Some(134_515_008) };
        assert_eq!(llama, expected);
        assert_eq!(facts(json!({ "id": "m", "max_model_len": 4_096 })).context_tokens, Some(4_096));
        assert_eq!(facts(json!({ "id": "m" })), ServerFacts::default());
        let two = json!({ "data": [{ "id": "a", "max_model_len": 1 }, { "id": "b", "max_model_len": 2 }] });
        assert_eq!(read_models(&two, "b").context_tokens, Some(2));
        assert_eq!(read_models(&two, "c"), ServerFacts::default());
        assert_eq!(read_props(&json!({ "default_generation_settings": { "n_ctx": 2_048 } })), Some(2_048));
        assert_eq!(read_props(&json!({})), None);
    }
}
