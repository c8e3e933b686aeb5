//! Front ends: requests as Open WebUI and LibreChat make them.

use std::fs;

use serde_json::{Value, json};
use testkit::{chat_body, open_webui, workspace};

use super::{ANSWER, ClientStage, Language};

/// Returns the headers that the documentation tells people to set.
fn documented_headers() -> String {
    let guide = fs::read_to_string(workspace().join("docs/chat-api.md")).unwrap();
    let headers = guide.lines().find(|line| line.contains("{{CHAT_ID}}")).expect("headers for Open WebUI");
    headers.to_owned()
}

/// Two chats are two handoffs of one thread, and nothing else is one.
async fn assert_only_chats_are_work(with_headers: &str) {
    let clients = ClientStage::start().await;
    let key = clients.stage.gateway.api_key_with("webui", &[("is_front_end", json!(true))]).await.1;
    let (headers, modules) = (documented_headers(), open_webui().display().to_string());
    let variables = [
        ("API_KEY", key.as_str()),
        ("CONNECTION_HEADERS", &headers),
        ("OPEN_WEBUI", &modules),
        ("WITH_HEADERS", with_headers),
    ];
    clients.run_with(Language::Python, "open_webui.py", &variables).await;
    assert_eq!(clients.stage.handoffs().await, 2);
    clients.assert_asked_once();
    let carol = clients.stage.orchestrator.client(&key).with("x-cynode-user", "7d3f0b52-carol");
    let threads = carol.send("GET", "/threads", None).await.body;
    assert_eq!(threads["data"].as_array().unwrap().len(), 1, "{threads}");
    assert_eq!(threads["data"][0]["turns"], 2, "{threads}");
}

#[tokio::test]
async fn open_webui_with_headers_hands_off_chats_alone() {
    assert_only_chats_are_work("yes").await;
}

#[tokio::test]
async fn open_webui_without_headers_hands_off_chats_alone() {
    assert_only_chats_are_work("no").await;
}

/// Headers as LibreChat fills them in, from the example in the documentation.
#[tokio::test]
async fn librechat_names_its_users_and_conversations() {
    let clients = ClientStage::start().await;
    let key = clients.stage.gateway.api_key_with("librechat", &[("is_front_end", json!(true))]).await.1;
    let guide = fs::read_to_string(workspace().join("docs/chat-api.md")).unwrap();
    let mut client = clients.stage.orchestrator.client(&key);
    let headers: Vec<(&str, &str)> = guide
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(_, value)| value.contains("{{LIBRECHAT_"))
        .collect();
    assert_eq!(headers.len(), 2, "{headers:?}");
    for (name, value) in headers {
        let value = value.trim_matches('"');
        let value = value.replace("{{LIBRECHAT_USER_ID}}", "665f1c2ab1c9d7e2a4f0c111");
        client = client.with(name, &value.replace("{{LIBRECHAT_BODY_CONVERSATIONID}}", "conversation-1"));
    }
    for text in ["[plain:first] Paint the fence", "[plain:second] And the gate?"] {
        let mut body = chat_body(&[("user", text)]);
        for (member, value) in [("stream", json!(true)), ("user", json!("665f1c2ab1c9d7e2a4f0c111"))] {
            body[member] = value;
        }
        let streamed = client.open("/chat/completions", &body).await.unwrap().read().await;
        assert_eq!((streamed.content.as_str(), streamed.is_done), (ANSWER, true));
    }
    let thread = client.send("GET", "/threads/conversation-1", None).await.body;
    assert_eq!((&thread["turns"], &thread["in_progress"]), (&json!(2), &Value::Null), "{thread}");
}
