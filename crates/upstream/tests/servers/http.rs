//! Upstreams over HTTP.

use std::fs;

use serde_json::json;
use testkit::{Answer, Gateway, Tool, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use upstream::{Error, Fate, Transport, Upstream};

use crate::support::{call, call_with, gateway, http, legacy_gateway, options, text, tool, upstream};

#[tokio::test]
async fn an_expired_session_is_replaced_and_the_call_is_repeated() {
    let gateway = legacy_gateway().await;
    let upstream = upstream(http(gateway.url()));
    call(&upstream, "echo").await.unwrap();
    // As if the session had expired.
    let session = gateway.calls()[0].session.clone().unwrap();
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let request = format!(
        "DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Session-Id: {session}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    call(&upstream, "echo").await.unwrap();
    let sessions: Vec<_> = gateway.calls().into_iter().map(|called| called.session.unwrap()).collect();
    assert_eq!(sessions.len(), 2);
    assert_ne!(sessions[0], sessions[1]);
}

#[tokio::test]
async fn an_interrupted_call_is_not_repeated() {
    let mut gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    call(&upstream, "echo").await.unwrap();
    let (called, ()) = tokio::join!(call(&upstream, "hang"), async {
        eventually("it runs", async || (gateway.calls().len() == 2).then_some(())).await;
        gateway.start_again();
    });
    let failure = called.unwrap_err();
    assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
    call(&upstream, "echo").await.unwrap();
    let names: Vec<_> = gateway.calls().into_iter().map(|called| called.name).collect();
    assert_eq!(names, ["echo", "hang", "echo"]);
}

#[tokio::test]
async fn the_upstream_token_is_sent_and_masked_in_errors() {
    let token = "upstream-secret-1";
    let quoting = vec![tool("quote", move || Answer::rejected(-32000, format!("not with {token}!")))];
    let gateway = Gateway::start(quoting).await;
    gateway.require_token(token);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let with_token =
        || options(Transport::Http { url: gateway.url(), token_file: Some(path.clone()), addresses: None });

    let failure = call(&upstream(with_token()), "quote").await.unwrap_err();
    assert!(matches!(failure.error, Error::Secret(..)), "{failure:?}");
    assert_eq!(failure.fate, Fate::NotRun);

    fs::write(&path, format!("{token}\n")).unwrap();
    let upstream = upstream(with_token());
    let failure = call(&upstream, "quote").await.unwrap_err();
    assert_eq!(gateway.calls()[0].authorization.as_deref(), Some("Bearer upstream-secret-1"));
    assert_eq!(failure.to_string(), "the upstream rejected the request: not with [token]!");
    assert!(!format!("{failure:?} {upstream:?} {:?}", upstream.health()).contains(token));
}

#[tokio::test]
async fn an_argument_that_belongs_in_a_header_is_sent_there() {
    let schema = json!({
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    });
    let tools = vec![Tool::new("measure", "Wants a header", schema, |_| Answer::text("done"))];
    let gateway = Gateway::start(tools).await;
    let upstream = upstream(http(gateway.url()));
    // The header is only known from the list of tools, which was not fetched yet.
    call_with(&upstream, "measure", json!({"region": "north"})).await.unwrap();
    assert_eq!(gateway.calls().len(), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let gateway = gateway().await;
    gateway.fail_with(Some(307));
    let failure = call(&upstream(http(gateway.url())), "echo").await.unwrap_err();
    assert_eq!(failure.fate, Fate::NotRun, "{failure:?}");
    assert!(gateway.calls().is_empty());
}

#[tokio::test]
async fn an_invalid_url_is_refused_at_once() {
    for url in ["", "ftp://127.0.0.1/mcp", "not an address"] {
        let error = Upstream::new(http(url.to_owned())).unwrap_err();
        assert!(matches!(error, Error::Options(_)), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn calls_after_close_fail() {
    let gateway = legacy_gateway().await;
    let upstream = upstream(http(gateway.url()));
    assert_eq!(text(&call(&upstream, "echo").await.unwrap()), "{}");
    upstream.close().await;
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert!(matches!(failure.error, Error::Closed), "{failure:?}");
    assert_eq!((failure.fate, gateway.calls().len()), (Fate::NotRun, 1));
    upstream.close().await;
}
