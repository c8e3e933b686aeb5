//! Servers that are down, break off, or are not MCP servers.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use mcp::{Call, Client, Error, Options};
use testkit::{Answer, Gateway, Tool};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{call, chain, client, options, tool};

fn works() -> Vec<Tool> {
    vec![tool("works", || Answer::text("done"))]
}

/// Uses idempotency keys, since a dead connection is only noticed when a request is written to it.
#[tokio::test]
async fn the_client_reconnects_after_a_server_restart() {
    for legacy in [false, true] {
        let mut gateway =
            if legacy { Gateway::start_legacy(works()).await } else { Gateway::start(works()).await };
        let client = client(gateway.url());
        let works = async |key| {
            client.call(Call { idempotency_key: Some(key), ..call("works") }).await.map(|reply| reply.text)
        };
        assert_eq!(works("1").await.unwrap(), "done");
        gateway.start_again();
        assert_eq!(works("2").await.unwrap(), "done", "legacy: {legacy}");

        gateway.kill();
        let error = works("3").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)) && error.is_transient(), "{error:?}");
        assert!(error.is_unreachable(), "legacy: {legacy}: {error:?}");
        gateway.start_again();
        assert_eq!(works("3").await.unwrap(), "done", "legacy: {legacy}");
        assert_eq!(gateway.calls().iter().filter(|called| !called.repeated).count(), 3);
    }
}

#[tokio::test]
async fn a_client_can_be_created_before_its_server_starts() {
    let mut gateway = Gateway::start(works()).await;
    gateway.kill();
    let client = client(gateway.url());
    let error = client.tools().await.unwrap_err();
    assert!(error.is_transient() && error.is_unreachable() && error.is_unsent(), "{error:?}");
    gateway.start_again();
    assert_eq!(client.tools().await.unwrap().len(), 1);
}

#[tokio::test]
async fn http_statuses_are_classified_as_transient_or_permanent() {
    let gateway = Gateway::start(works()).await;
    let client = client(gateway.url());
    client.tools().await.unwrap();
    for (status, is_transient) in [
        (500, true),
        (502, true),
        (503, true),
        (504, true),
        (429, true),
        (403, false),
        (404, false),
        (302, false),
    ] {
        gateway.fail_with(Some(status));
        let error = client.call(call("works")).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{status}: {error:?}");
        assert!(!error.is_unreachable(), "a server that responds is reached: {status}: {error:?}");
        assert!(!error.is_unsent(), "{status}: {error:?}");
        assert_eq!(matches!(error, Error::Rejected { .. }), status == 403, "{status}: {error:?}");
        gateway.fail_with(None);
        assert_eq!(client.call(call("works")).await.unwrap().text, "done", "after {status}");
    }
}

/// A proxy between client and gateway that can forward a request and break off its response.
struct Wire {
    address: SocketAddr,
    /// After how many more bytes of responses the connection is closed, once.
    left: Arc<Mutex<Option<usize>>>,
    _carrying: JoinSet<()>,
}

impl Wire {
    async fn to(gateway: &Gateway) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::<Mutex<Option<usize>>>::default();
        let mut carrying = JoinSet::new();
        let (server, breaks_after) = (gateway.address(), left.clone());
        carrying.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, server, breaks_after.clone()));
            }
        });
        Self { address, left, _carrying: carrying }
    }

    fn client(&self) -> Client {
        client(format!("http://{}/mcp", self.address))
    }

    fn drop_next_response(&self) {
        self.break_after(0);
    }

    fn break_after(&self, bytes: usize) {
        *self.left.lock().unwrap() = Some(bytes);
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, left: Arc<Mutex<Option<usize>>>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => server.write_all(&asked[..count]).await.unwrap(),
            },
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                let (sent, breaks) = {
                    let mut left = left.lock().unwrap();
                    match *left {
                        Some(bytes) if bytes <= count => {
                            *left = None;
                            (bytes, true)
                        }
                        Some(bytes) => {
                            *left = Some(bytes - count);
                            (count, false)
                        }
                        None => (count, false),
                    }
                };
                drop(client.write_all(&answered[..sent]).await);
                if breaks {
                    return;
                }
            },
        }
    }
}

#[tokio::test]
async fn a_call_of_unknown_fate_is_not_repeated_without_a_key() {
    let gateway = Gateway::start(works()).await;
    let wire = Wire::to(&gateway).await;
    let client = wire.client();
    client.tools().await.unwrap();
    wire.drop_next_response();
    let error = client.call(call("works")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert_eq!(gateway.calls().len(), 1);
}

#[tokio::test]
async fn a_call_of_unknown_fate_is_repeated_with_its_key() {
    let gateway = Gateway::start(works()).await;
    let wire = Wire::to(&gateway).await;
    let client = wire.client();
    client.tools().await.unwrap();
    wire.drop_next_response();
    let reply = client.call(Call { idempotency_key: Some("k-1"), ..call("works") }).await.unwrap();
    assert_eq!(reply.text, "done");
    let repeated: Vec<_> = gateway.calls().iter().map(|called| called.repeated).collect();
    assert_eq!(repeated, [false, true]);
}

/// Starts a server that answers everything with the same bytes.
async fn parrot(answer: String) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            drop(stream.read(&mut request).await);
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    (url, serving)
}

fn page(kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_server_that_does_not_speak_mcp_is_a_permanent_error() {
    let huge = format!(r#"{{"jsonrpc":"2.0","id":0,"result":"{}"}}"#, "x".repeat(17 * 1024 * 1024));
    for (what, answer) in [
        ("a web page", page("text/html", "<h1>It works!</h1>")),
        ("other JSON", page("application/json", r#"{"hello": "world"}"#)),
        ("not JSON", page("application/json", "hello")),
        ("too much", page("application/json", &huge)),
        ("not found", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()),
    ] {
        let (url, _serving) = parrot(answer).await;
        let error = client(url).tools().await.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)) && !error.is_transient(), "{what}: {}", chain(&error));
    }
}

/// No TLS provider is installed in this process, so the client must install one.
#[tokio::test]
async fn https_to_a_server_without_tls_is_an_error_and_no_panic() {
    let gateway = Gateway::start(works()).await;
    let error = client(format!("https://{}/mcp", gateway.address())).tools().await.unwrap_err();
    assert!(
        matches!(error, Error::Unavailable(_)) && chain(&error).contains("connecting"),
        "{}",
        chain(&error)
    );
}

/// rmcp alone would ignore an error without an id and wait for another response.
#[tokio::test]
async fn an_error_without_an_id_is_taken_as_the_response() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"on fire"}}"#;
    let (url, _serving) = parrot(page("application/json", body)).await;
    let error = client(url).tools().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)) && chain(&error).contains("on fire"), "{}", chain(&error));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new(Options { call_timeout: Duration::from_millis(300), ..options(url) }).unwrap();
    assert!(matches!(client.tools().await.unwrap_err(), Error::TimedOut));
    assert!(matches!(client.call(call("works")).await.unwrap_err(), Error::TimedOut));
}

/// A server may die while it answers any request of the handshake, or the call.
#[tokio::test]
async fn a_connection_that_breaks_at_any_byte_is_noticed_at_once() {
    let gateway = Gateway::start(works()).await;
    for bytes in (0..2_500).step_by(61) {
        let wire = Wire::to(&gateway).await;
        wire.break_after(bytes);
        let client = wire.client();
        let key = bytes.to_string();
        let calls = async {
            for _ in 0..3 {
                if client.call(Call { idempotency_key: Some(&key), ..call("works") }).await.is_ok() {
                    return;
                }
            }
            panic!("after {bytes} bytes: three calls failed");
        };
        let done = tokio::time::timeout(Duration::from_secs(10), calls).await;
        assert!(done.is_ok(), "after {bytes} bytes: the call hangs");
    }
}

/// A caller that is not polled any more, for example because its task waits for something else, must not
/// keep others from connecting.
#[tokio::test]
async fn a_caller_that_stands_still_while_it_connects_does_not_block_others() {
    let gateway = Gateway::start(works()).await;
    let client = client(gateway.url());
    let mut still = pin!(client.call(call("works")));
    // Far enough to have begun the handshake, and no further.
    assert!(still.as_mut().now_or_never().is_none());
    let other = tokio::time::timeout(Duration::from_secs(10), client.call(call("works"))).await;
    assert_eq!(other.expect("the other call hangs").unwrap().text, "done");
    assert_eq!(still.await.unwrap().text, "done");
}
