//! Keys of front ends, which speak for their users, and what a key decides about clients that leave.

use serde_json::json;
use subjects::Kind;
use testkit::Script;

use crate::stage::Stage;

#[tokio::test]
async fn a_front_end_names_the_users_it_speaks_for() {
    let stage = Stage::start([Script::say("Hello.")]).await;
    let key = stage.gateway.api_key_with("webui", &[("is_front_end", json!(true))]).await.1;
    let client = stage.orchestrator.client(&key);
    let carol = client.clone().with("x-openwebui-user-id", "carol").with("x-openwebui-chat-id", "chat-7");
    assert_eq!(carol.ask("hello").await.content(), "Hello.");
    assert_eq!(carol.send("GET", "/threads/chat-7", None).await.body["turns"], 1);
    // Each of its users is one of their own, also with the same chat.
    let dave = client.clone().with("x-cynode-user", "dave").with("x-openwebui-chat-id", "chat-7");
    assert_eq!(dave.send("GET", "/threads/chat-7", None).await.status, 404);
    assert_eq!(client.send("GET", "/threads", None).await.body["data"], json!([]));
    // A header without a value, as of a request that the front end makes for itself, names no user.
    for header in ["x-cynode-user", "x-openwebui-user-id"] {
        let nobody =
            client.clone().with(header, "").with("x-cynode-thread", "own").with("x-openwebui-chat-id", "");
        assert_eq!(nobody.send("GET", "/models", None).await.status, 200);
        assert_eq!(nobody.ask("hello").await.content(), "Hello.");
    }
    let own = client.send("GET", "/threads/own", None).await;
    assert_eq!((own.status, &own.body["turns"]), (200, &json!(2)), "{own:?}");
    // What carol does with a key of her own is the same user.
    let own = stage.orchestrator.client(&stage.gateway.api_key("carol").await.1);
    assert_eq!(own.send("GET", "/threads/chat-7", None).await.status, 200);
    // The headers of a front end mean nothing with another key.
    let alice = stage.client().with("x-openwebui-user-id", "carol").with("x-openwebui-chat-id", "chat-7");
    assert_eq!(alice.send("GET", "/threads", None).await.body["data"], json!([]));
    assert_eq!(alice.ask("hello").await.status, 200);
    assert_eq!(alice.send("GET", "/threads/chat-7", None).await.status, 404);
    assert_eq!(stage.client().with("x-cynode-user", "carol").ask("hello").await.status, 403);
}

/// A Stop button closes the connection.
#[tokio::test]
async fn a_key_may_cancel_what_its_clients_no_longer_wait_for() {
    let stage = Stage::start([Script::Hang]).await;
    let key = stage.gateway.api_key_with("erin", &[("on_disconnect", json!("cancel"))]).await.1;
    let client = stage.orchestrator.client(&key);
    let mut stream = client.stream(&[("user", "hello")]).await;
    stream.next().await;
    let path = format!("/chat/completions/chatcmpl-{}", stream.header("x-cynode-handoff").unwrap());
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    drop(stream);
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
    let cancelled = testkit::eventually("the turn has ended", || async {
        let found = client.send("GET", &path, None).await;
        (found.status != 202).then_some(found)
    })
    .await;
    assert_eq!((cancelled.status, cancelled.code()), (409, "cancelled"));

    // The same for a request that waits for the whole answer.
    let asking = client.ask("hello again");
    tokio::select! {
        _ = asking => panic!("the model never answers"),
        () = stage.worker.wait_for_in_flight(Kind::Chat, 1) => {}
    }
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
}
