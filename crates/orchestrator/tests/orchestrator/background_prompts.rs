//! Prompts that front ends make for themselves never become work for the manager.

use serde_json::{Value, json};
use testkit::{Script, chat_body};

use crate::stage::Stage;

const HISTORY: &str =
    "\n### Chat History:\n<chat_history>\nUSER: Paint the fence\nASSISTANT: Done.\n</chat_history>";

#[tokio::test]
async fn titles_tags_and_the_like_are_answered_without_a_handoff() {
    let stage = Stage::start([Script::say("hello")]).await;
    let client = stage.client();
    for (asks, expected) in [
        (r#"JSON format: { "title": "your concise title here" }"#, json!({ "title": "Paint the fence" })),
        (r#"JSON format: { "tags": ["tag1", "tag2", "tag3"] }"#, json!({ "tags": ["General"] })),
        (r#"JSON format: { "follow_ups": ["Question 1?"] }"#, json!({ "follow_ups": [] })),
        (r#"Strictly return in JSON format: { "queries": ["query1"] }"#, json!({ "queries": [] })),
        (r#"Respond only in JSON format: `{ "text": "<completion>" }`."#, json!({ "text": "" })),
    ] {
        let prompt = format!("### Task:\nDo it.\n### Output:\n{asks}{HISTORY}");
        let mut body = chat_body(&[("user", &prompt)]);
        body["stream"] = json!(false);
        body["max_completion_tokens"] = json!(1000);
        let answer = client.send("POST", "/chat/completions", Some(body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(serde_json::from_str::<Value>(answer.content()).unwrap(), expected, "{asks}");
    }
    let by_header = client.clone().with("x-cynode-task", "title_generation");
    let streamed = by_header.stream(&[("user", "Paint the fence")]).await.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), (r#"{"title":"Paint the fence"}"#, true));
    assert_eq!(stage.handoffs().await, 0);
    assert_eq!(client.send("GET", "/threads", None).await.body["data"], json!([]));
    // A chat with the headers of a front end is one, if it names no task.
    let chat = client.with("x-cynode-task", "").ask("Paint the fence").await;
    assert_eq!((chat.content(), stage.handoffs().await), ("hello", 1));
}
