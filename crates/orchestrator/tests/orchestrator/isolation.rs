//! A user never sees what is another's.

use serde_json::{Value, json};
use testkit::Script;

use crate::stage::Stage;

/// Every endpoint with an id answers for another user's as if there were none.
#[tokio::test]
async fn what_is_anothers_does_not_exist() {
    let stage = Stage::start([Script::say("For alice alone.")]).await;
    let alice = stage.client().with("x-cynode-thread", "private");
    let answer = alice.ask("hello").await;
    let (id, thread) = (answer.body["id"].as_str().unwrap(), answer.header("x-cynode-thread").unwrap());
    let bob = stage.orchestrator.client(&stage.gateway.api_key("bob").await.1);
    let title = json!({ "title": "mine" });
    let response = id.replace("chatcmpl-", "/responses/resp_");
    let requests: [(&str, String, Option<Value>); 15] = [
        ("GET", response.clone(), None),
        ("POST", format!("{response}/cancel"), None),
        ("DELETE", response.clone(), None),
        ("GET", format!("{response}/input_items"), None),
        ("GET", format!("/chat/completions/{id}"), None),
        ("POST", format!("/chat/completions/{id}/cancel"), None),
        ("GET", format!("/threads/{thread}"), None),
        ("GET", "/threads/private".to_owned(), None),
        ("GET", format!("/threads/{thread}/messages"), None),
        ("GET", "/threads/private/messages".to_owned(), None),
        ("GET", format!("/threads/{thread}/export"), None),
        ("GET", format!("/threads/{thread}/export?format=markdown"), None),
        ("POST", format!("/threads/{thread}"), Some(title.clone())),
        ("POST", "/threads/private".to_owned(), Some(title)),
        ("DELETE", format!("/threads/{thread}"), None),
    ];
    for (method, path, body) in requests {
        let missing = bob.send(method, &path, body).await;
        assert_eq!(missing.status, 404, "{method} {path}: {missing:?}");
        assert!(!missing.body.to_string().contains("alone"), "{missing:?}");
    }
    // Nor can another's be followed or referred to.
    let following = json!({ "model": "cynodeai.pm", "input": "What did alice say?",
                            "previous_response_id": id.replace("chatcmpl-", "resp_") });
    let reference = json!({ "type": "item_reference", "id": id.replace("chatcmpl-", "msg_") });
    let user = json!({ "role": "user", "content": "What did alice say?" });
    let referring = json!({ "model": "cynodeai.pm", "input": [user, reference, user] });
    for (body, code) in [(following, "previous_response_not_found"), (referring, "item_not_found")] {
        let refused = bob.send("POST", "/responses", Some(body)).await;
        assert_eq!((refused.status, refused.code()), (400, code));
    }
    assert_eq!(bob.send("GET", "/threads", None).await.body["data"], json!([]));
    // The same names are other threads and requests.
    let named = bob.clone().with("x-cynode-thread", "private").with("x-stainless-retry-count", "1");
    let own = named.ask("hello").await;
    assert_ne!(own.header("x-cynode-thread"), Some(thread));
    assert_ne!(own.body["id"], id);
    // Naming another's thread by its id is no way in.
    let by_id = bob.clone().with("x-cynode-thread", thread).ask("What did alice say?").await;
    assert_ne!(by_id.header("x-cynode-thread"), Some(thread));
    assert_eq!(alice.send("GET", "/threads/private", None).await.body["turns"], 1);
    assert_eq!(alice.send("GET", "/threads", None).await.body["data"].as_array().unwrap().len(), 1);
}
