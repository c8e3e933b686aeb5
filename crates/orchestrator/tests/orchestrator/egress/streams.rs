//! What passes the egress: the request without what is the agent's, the reply as it comes, and its usage.

use serde_json::json;
use testkit::{ChatEvent, Model, Script, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Stage, body, provider_key, streamed};

/// P15: the provider gets the body and its own key, and nothing of the agent.
#[tokio::test]
async fn provider_gets_its_key_and_nothing_of_the_agent() {
    let stage = Stage::start(Model::start([Script::Whole("hello".to_owned())]).await).await;
    let client =
        stage.agent().with("cookie", "a=b").with("x-forwarded-for", "10.0.0.1").with("cynode-x", "y");
    let client = client.with("openai-organization", "theirs").with("traceparent", "00-0-0-00");
    let reply = client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!(reply.body.pointer("/choices/0/message/content"), Some(&json!("hello")), "{reply:?}");
    let asked = &stage.provider.asked()[0];
    assert_eq!(asked.authorization, Some(format!("Bearer {}", provider_key())));
    for hidden in
        ["cynode-", "cookie", "forwarded", "organization", "traceparent", &stage.token, &stage.lease]
    {
        assert!(!asked.headers.contains(hidden), "{hidden}: {}", asked.headers);
    }
    assert_eq!(asked.body, body());
    let used = stage.usage().await;
    assert_eq!((&used["prompt_tokens"], &used["completion_tokens"]), (&json!(11), &json!(5)), "{used}");
    assert_eq!(used["estimated_calls"], 0);
    let models = stage.agent().send("GET", "/models", None).await;
    assert_eq!((models.status, models.body["object"].as_str()), (200, Some("list")));
}

/// Pieces are passed on as they come; the provider is asked for the usage of the stream.
#[tokio::test]
async fn streams_are_passed_on_and_their_usage_is_counted() {
    let prices = ", price={prompt=10.0, completion=100.0}";
    let stage = Stage::start_with(Model::start([Script::say("hello world")]).await, prices, |it| it).await;
    let stream = stage.agent().open("/chat/completions", &streamed()).await.unwrap();
    assert_eq!((stream.status, stream.headers["content-type"].as_bytes()), (200, &b"text/event-stream"[..]));
    assert_eq!(stream.read().await.content, "hello world");
    assert_eq!(stage.provider.asked()[0].body["stream_options"], json!({ "include_usage": true }));
    let used = stage.usage().await;
    assert_eq!((&used["prompt_tokens"], &used["completion_tokens"]), (&json!(100), &json!(10)), "{used}");
    assert_eq!(used["usd"], 0.002, "100 × $10 and 10 × $100 for a million");
    let row = stage.gateway.audit("tool=egress.openai").await.remove(0);
    assert_eq!((&row["user_id"], &row["agent"]), (&json!("ada"), &json!("project_manager")), "{row}");
    let end = stage.gateway.audit("tool=egress.end").await.remove(0);
    assert_eq!((&end["user_id"], &end["status"]), (&json!("ada"), &json!("success")), "{end}");
    let metrics = reqwest::get(format!("{}/metrics", stage.orchestrator.admin_url())).await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "orchestrator_egress_calls_total{outcome=\"completed\"} 1",
        "orchestrator_egress_tokens_total{kind=\"completion\"} 10",
        "orchestrator_egress_open_calls 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// A provider that does not say what a reply used is not free of charge.
#[tokio::test]
async fn plain_reply_without_usage_is_estimated_by_its_size() {
    let reply =
        json!({ "choices": [{ "message": { "role": "assistant", "content": "word ".repeat(800) } }] });
    let stage = Stage::start(Model::start([Script::Json(reply)]).await).await;
    assert_eq!(stage.agent().send("POST", "/chat/completions", Some(body())).await.status, 200);
    let used = stage.usage().await;
    assert_eq!(used["estimated_calls"], 1, "{used}");
    assert!((1_000..1_020).contains(&used["completion_tokens"].as_u64().unwrap()), "{used}");
}

/// An agent that goes away cancels its call at the provider. What it used is estimated.
#[tokio::test]
async fn disconnect_cancels_the_call_at_the_provider() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let stage = Stage::start_at(Model::start([]).await, &url, "", |it| it).await;
    let is_answered = [true, false];
    for answers in is_answered {
        let agent = stage.agent();
        let asking = async move {
            let mut stream = agent.open("/chat/completions", &streamed()).await.unwrap();
            stream.next().await
        };
        let provider = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 16 * 1024];
            assert!(connection.read(&mut request).await.unwrap() > 0);
            if answers {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                connection.write_all(head.as_bytes()).await.unwrap();
                connection.write_all(b"data: {\"choices\":[]}\n\n").await.unwrap();
            }
            // The rest of the request, and then the end of the connection.
            while connection.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {}
        };
        if answers {
            // The stream is dropped after its first event.
            let (event, ()) = tokio::join!(asking, provider);
            assert_eq!(event, ChatEvent::Data(json!({ "choices": [] })));
        } else {
            let asking = tokio::time::timeout(std::time::Duration::from_millis(300), asking);
            let (asked, ()) = tokio::join!(asking, provider);
            assert!(asked.is_err(), "the agent gave up");
        }
    }
    let used = eventually("both calls have ended", || async {
        let used = stage.usage().await;
        (used["calls"] == 2).then_some(used)
    })
    .await;
    assert_eq!(used["estimated_calls"], 2, "{used}");
    assert_eq!(used["completion_tokens"], 1, "one event had come");
    let ends = stage.gateway.audit("tool=egress.end").await;
    assert!(ends.iter().all(|end| end["error_type"] == "cancelled"), "{ends:?}");
}
