//! Plain chats, models, errors.

use std::time::Duration;

use serde_json::json;
use testkit::{Model, Script, chat_body};

use crate::stage::Stage;

/// P14: `cynodeai.pm` is the project manager. Its answer comes as OpenAI's clients expect it.
#[tokio::test]
async fn a_chat_is_answered_by_the_project_manager() {
    let stage = Stage::start([Script::say("Nothing is left to do.")]).await;
    let answer = stage.client().ask("What is left?").await;
    assert_eq!((answer.status, answer.content()), (200, "Nothing is left to do."));
    assert_eq!(answer.body["object"], "chat.completion");
    assert_eq!(answer.body["model"], "cynodeai.pm");
    assert_eq!(answer.body["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer.body["choices"][0]["message"]["role"], "assistant");
    assert!(answer.body["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert!(answer.body["created"].as_i64().unwrap() > 1_700_000_000);
    let handoff = answer.header("x-cynode-handoff").unwrap();
    assert_eq!(answer.body["id"], format!("chatcmpl-{handoff}"));
    assert!(answer.header("x-request-id").unwrap().starts_with("req_"));
    assert!(answer.header("x-cynode-thread").is_some());
    assert!(answer.header("x-ratelimit-remaining-requests").is_some());

    // The same is found by id.
    let stored = stage.client().send("GET", &format!("/chat/completions/chatcmpl-{handoff}"), None).await;
    assert_eq!((stored.status, &stored.body), (200, &answer.body));
}

/// P4: another model id never reaches a manager.
#[tokio::test]
async fn other_models_never_reach_a_manager() {
    let stage = Stage::start([Script::say("hello")]).await;
    let client = stage.client();
    for model in ["cynodeai.pm2", "CynodeAI.pm", " cynodeai.pm", "gpt-9", "cynodeai"] {
        let mut body = chat_body(&[("user", "hello")]);
        body["model"] = json!(model);
        let refused = client.send("POST", "/chat/completions", Some(body)).await;
        assert_eq!((refused.status, refused.code()), (404, "model_not_found"), "{model}");
    }
    assert_eq!(stage.handoffs().await, 0);
    let models = client.send("GET", "/models", None).await;
    assert_eq!(models.body["data"][0]["id"], "cynodeai.pm");
    assert_eq!(client.send("GET", "/models/cynodeai.pm", None).await.status, 200);
    assert_eq!(client.send("GET", "/models/other", None).await.code(), "model_not_found");
}

/// A request that the model refuses, since one that fails as in an outage stops the pulling of the next.
#[tokio::test]
async fn a_failed_turn_is_an_error_with_its_code_that_is_not_retried() {
    let stage = Stage::start([Script::Refuse(400, "no such model".to_owned())]).await;
    let failed = stage.client().ask("What is left?").await;
    assert_eq!((failed.status, failed.code()), (502, "inference_failed"));
    assert_eq!(failed.header("x-should-retry"), Some("false"));
    let handoff = failed.header("x-cynode-handoff").unwrap().to_owned();
    let stored = stage.client().send("GET", &format!("/chat/completions/chatcmpl-{handoff}"), None).await;
    assert_eq!((stored.status, &stored.body), (failed.status, &failed.body));

    let streamed = stage.client().stream(&[("user", "And now?")]).await;
    assert_eq!(streamed.status, 200);
    let streamed = streamed.read().await;
    assert!(!streamed.is_done && streamed.content.is_empty(), "{streamed:?}");
    assert_eq!(streamed.error.unwrap()["code"], failed.body["error"]["code"]);
}

#[tokio::test]
async fn an_outage_of_the_model_is_an_error_with_its_code() {
    let stage = Stage::start([Script::Status(500, None)]).await;
    let failed = stage.client().ask("What is left?").await;
    assert_eq!((failed.status, failed.code()), (503, "inference_unavailable"));
    assert_eq!(failed.header("x-should-retry"), Some("false"));
}

#[tokio::test]
async fn an_answer_that_takes_too_long_can_be_fetched() {
    let slow = Script::After(Duration::from_millis(1500), Box::new(Script::say("Here it is.")));
    let stage =
        Stage::start_with(Model::start([slow]).await, |builder| builder.set("chat.wait", "300ms")).await;
    let client = stage.client();
    let pending = client.ask("Take your time.").await;
    assert_eq!((pending.status, pending.code()), (504, "answer_pending"));
    let path = format!("/chat/completions/chatcmpl-{}", pending.header("x-cynode-handoff").unwrap());
    let unfinished = client.send("GET", &path, None).await;
    assert_eq!((unfinished.status, &unfinished.body["choices"]), (202, &json!([])));
    assert_eq!(unfinished.body["cynode"]["state"], "in_progress");
    let answer = testkit::eventually("the answer is stored", || async {
        let found = client.send("GET", &path, None).await;
        (found.status == 200).then_some(found)
    })
    .await;
    assert_eq!(answer.content(), "Here it is.");
}

#[tokio::test]
async fn a_chat_can_be_cancelled() {
    let stage = Stage::start([Script::Hang]).await;
    let client = stage.client();
    let mut stream = client.stream(&[("user", "Never mind.")]).await;
    stream.next().await;
    let path = format!("/chat/completions/chatcmpl-{}/cancel", stream.header("x-cynode-handoff").unwrap());
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    let cancelled = client.send("POST", &path, None).await;
    assert_eq!((cancelled.status, cancelled.code()), (409, "cancelled"));
    assert_eq!(cancelled.header("x-should-retry"), Some("false"));
    let streamed = stream.read().await;
    assert_eq!(streamed.error.unwrap()["code"], "cancelled");
    // The thread takes the next message.
    assert_eq!(client.send("GET", "/threads", None).await.body["data"][0]["in_progress"], json!(null));
}

#[tokio::test]
async fn unknown_paths_methods_and_keys_are_refused_in_openais_shape() {
    let stage = Stage::start([Script::say("hello")]).await;
    let client = stage.client();
    for (method, path, status, code) in [
        ("GET", "/nowhere", 404, "unknown_url"),
        ("POST", "/", 404, "unknown_url"),
        ("DELETE", "/models", 405, "method_not_allowed"),
        ("GET", "/chat/completions", 405, "method_not_allowed"),
        ("GET", "/chat/completions/x", 404, "completion_not_found"),
        ("GET", "/threads/x", 404, "thread_not_found"),
        ("GET", "/threads?limit=0", 400, "invalid_value"),
    ] {
        let refused = client.send(method, path, None).await;
        assert_eq!((refused.status, refused.code()), (status, code), "{method} {path}");
        assert!(refused.body["error"]["message"].is_string() && refused.header("x-request-id").is_some());
    }
    for key in ["", "cyn_unknown", "x y z"] {
        let refused = stage.orchestrator.client(key).ask("hello").await;
        assert_eq!((refused.status, refused.code()), (401, "invalid_api_key"), "{key}");
    }
    let other_host = stage.client().with("host", "evil.example").send("GET", "/models", None).await;
    assert_eq!((other_host.status, other_host.code()), (403, "host_not_allowed"));
    assert_eq!(stage.handoffs().await, 0);
}

#[tokio::test]
async fn a_revoked_key_is_refused() {
    let stage = Stage::start([Script::say("hello")]).await;
    let (id, secret) = stage.gateway.api_key("bob").await;
    let client = stage.orchestrator.client(&secret);
    assert_eq!(client.send("GET", "/models", None).await.status, 200);
    stage.gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    testkit::eventually("the key is refused", || async {
        (client.send("GET", "/models", None).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_key_is_limited_in_requests_and_turns() {
    let model = Model::start([Script::Hang]).await;
    let stage = Stage::start_with(model, |builder| {
        builder.set("rate_limits.requests_per_minute", "5").set("rate_limits.concurrent_turns", "1")
    })
    .await;
    let client = stage.client();
    let stream = client.stream(&[("user", "one")]).await;
    assert_eq!((stream.status, stream.header("x-ratelimit-remaining-requests")), (200, Some("4")));
    let refused = client.ask("two").await;
    assert_eq!((refused.status, refused.code()), (429, "rate_limit_exceeded"));
    assert!(refused.header("retry-after-ms").is_some() && refused.header("retry-after").is_some());
    for _ in 0..3 {
        client.send("GET", "/models", None).await;
    }
    let refused = client.send("GET", "/models", None).await;
    assert_eq!((refused.status, refused.code()), (429, "rate_limit_exceeded"));
    let other = stage.orchestrator.client(&stage.gateway.api_key("bob").await.1);
    assert_eq!(other.send("GET", "/models", None).await.status, 200);
}
