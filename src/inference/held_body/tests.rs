use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};

use super::super::transport::Transport;

const BODY: &[u8] = b"{\"model\":\"m\"}";
const SILENCE: Duration = Duration::from_secs(30);

async fn server() -> (TcpListener, Transport) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    (listener, Transport::new(&url, None, 1 << 20).unwrap())
}

/// Reads until the end of the request's head.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A process that was frozen while it connected finds out, in its permit, that it has lost the handoff.
#[tokio::test]
async fn server_gets_no_body_without_a_permit() {
    let (listener, transport) = server().await;
    let (asked, permit_is_asked_for) = oneshot::channel();
    let permit = async {
        asked.send(()).unwrap();
        std::future::pending().await
    };
    let asking = async { transport.ask(BODY.to_vec(), None, permit, SILENCE).await.map(drop) };
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        permit_is_asked_for.await.unwrap();
        stream
    };
    let mut stream = tokio::select! {
        _ = asking => panic!("it was sent without a permit"),
        stream = serving => stream,
    };
    // The handoff is lost, so the work is dropped.
    let mut rest = Vec::new();
    timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn permitted_body_is_sent_whole_with_its_length() {
    let (listener, transport) = server().await;
    let asking = transport.ask(BODY.to_vec(), None, async {}, SILENCE);
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await.to_lowercase();
        let mut body = vec![0; BODY.len()];
        stream.read_exact(&mut body).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await.unwrap();
        (head, body, stream)
    };
    let (asked, (head, body, _stream)) = tokio::join!(asking, serving);
    assert!(asked.is_ok());
    assert!(head.contains(&format!("content-length: {}", BODY.len())), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert_eq!(body, BODY);
}
