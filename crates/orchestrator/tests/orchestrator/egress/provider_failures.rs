//! A provider that fails or misbehaves: agents learn why, and never its key.

use serde_json::json;
use testkit::{Model, Script};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Stage, body, provider_key, streamed, write_private};

#[tokio::test]
async fn errors_of_a_provider_are_passed_on_without_its_key() {
    let key = provider_key();
    let provider = Model::start([
        Script::Refuse(400, format!("The header was: Bearer {key}. Your tools are wrong.")),
        Script::Refuse(401, format!("Incorrect API key provided: {key}")),
        Script::Refuse(403, format!("The project of {key} has no access to this model.")),
        Script::Status(429, Some("7".to_owned())),
        Script::Status(503, None),
        Script::Status(302, None),
        Script::Whole(format!("the key is {key}")),
    ])
    .await;
    let stage = Stage::start(provider).await;
    for (status, code) in [
        (400, None),
        (502, Some("provider_refused_key")),
        (403, Some("provider_forbids")),
        (429, None),
        (503, None),
        (502, Some("provider_redirected")),
        (200, None),
    ] {
        let reply = stage.agent().send("POST", "/chat/completions", Some(body())).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(!format!("{reply:?}").contains(&key), "{reply:?}");
        if let Some(code) = code {
            assert_eq!(reply.body["error"]["code"], code);
        }
        if matches!(code, Some("provider_refused_key" | "provider_forbids")) {
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("The provider ") && message.contains("operator"), "{message}");
        }
        if status == 502 {
            assert_eq!(reply.headers["x-should-retry"], "false", "only an operator can change that");
        }
        if status == 400 {
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.ends_with("Your tools are wrong."), "{message}");
        }
        if status == 429 {
            assert_eq!(reply.headers["retry-after"], "7");
        }
    }
    assert!(!stage.orchestrator.log().contains(&key));
    let used = stage.usage().await;
    assert_eq!(
        (&used["calls"], &used["prompt_tokens"]),
        (&json!(7), &json!(11)),
        "errors cost nothing: {used}"
    );
}

/// The key is also taken out of a stream, wherever it is split.
#[tokio::test]
async fn key_in_a_stream_is_masked() {
    let (key, half) = (provider_key(), 11);
    let chunk = |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string();
    let raw = vec![chunk(&format!("before {key} after ")), chunk(&key[..half])];
    let stage = Stage::start(Model::start([Script::Raw(raw)]).await).await;
    let stream = stage.agent().open("/chat/completions", &streamed()).await.unwrap();
    // A part of the key is not the key.
    assert_eq!(stream.read().await.content, format!("before [key] after {}", &key[..half]));
}

/// In a compressed reply the key cannot be found, so none is passed on. The provider is asked for none.
#[tokio::test]
async fn encoded_reply_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let stage = Stage::start_at(Model::start([]).await, &url, "", |it| it).await;
    for (answer, encoding, status, code) in [
        ("200 OK", "content-encoding: gzip", 502, "provider_encoded_reply"),
        ("200 OK", "content-encoding: identity\r\ncontent-encoding: BR", 502, "provider_encoded_reply"),
        ("200 OK", "content-encoding: Identity", 200, ""),
        ("400 Bad Request", "content-encoding: gzip", 400, "provider_failed"),
    ] {
        let provider = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 16 * 1024];
            let mut read = 0;
            // The body ends with the last bracket.
            while !request[..read].ends_with(b"}") {
                read += connection.read(&mut request[read..]).await.unwrap();
            }
            let request = String::from_utf8_lossy(&request[..read]).to_ascii_lowercase();
            assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
            let head = format!("HTTP/1.1 {answer}\r\n{encoding}\r\ncontent-length: 18\r\nconnection: close");
            connection.write_all(format!("{head}\r\n\r\n{{\"x\":\"COMPRESSED\"}}").as_bytes()).await.unwrap();
        };
        let agent = stage.agent().with("accept-encoding", "gzip");
        let (reply, ()) = tokio::join!(agent.send("POST", "/chat/completions", Some(body())), provider);
        assert_eq!(reply.status, status, "{encoding}: {reply:?}");
        assert_eq!(reply.body["error"]["code"].as_str().unwrap_or_default(), code, "{reply:?}");
        assert_eq!(reply.body.to_string().contains("COMPRESSED"), status == 200, "{reply:?}");
    }
}

/// A key file that is replaced is read again.
#[tokio::test]
async fn replaced_key_is_used() {
    let stage = Stage::start(Model::start([Script::say("hi")]).await).await;
    assert_eq!(stage.agent().send("POST", "/chat/completions", Some(body())).await.status, 200);
    write_private(&stage.key_file(), "another-key-of-the-provider");
    testkit::eventually("the new key is used", || async {
        stage.agent().send("POST", "/chat/completions", Some(body())).await;
        let last = stage.provider.asked().pop().unwrap().authorization;
        (last.as_deref() == Some("Bearer another-key-of-the-provider")).then_some(())
    })
    .await;
}

/// A provider that cannot be reached, or that says nothing, is an error of its own.
#[tokio::test]
async fn provider_that_is_away_is_named() {
    let stage = Stage::start_at(Model::start([]).await, "http://127.0.0.1:1/v1", "", |it| it).await;
    let reply = stage.agent().send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((reply.status, reply.body["error"]["code"].as_str()), (502, Some("provider_unreachable")));
    let stage =
        Stage::start_with(Model::start([Script::Hang]).await, "", |it| it.set("egress.silence", "1s")).await;
    let reply = stage.agent().send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((reply.status, reply.body["error"]["code"].as_str()), (504, Some("provider_silent")));
}
