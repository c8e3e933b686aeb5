//! A proxy before the gateway that delays reports of the ends of calls.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

/// Stopped when it is dropped.
pub(super) struct SlowGateway {
    url: String,
    _serving: JoinSet<()>,
}

impl SlowGateway {
    /// Passes everything on to a gateway, and delays `egress.end`.
    pub(super) async fn start(gateway_url: &str, delay: Duration) -> Self {
        let (address, path) = gateway_url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let address = address.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/{path}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (from_client, to_client) = listener.accept().await.unwrap().0.into_split();
                let (from_gateway, to_gateway) = TcpStream::connect(&address).await.unwrap().into_split();
                connections.spawn(copy(from_client, to_gateway, delay));
                connections.spawn(copy(from_gateway, to_client, Duration::ZERO));
            }
        });
        Self { url, _serving: serving }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay_of_ends: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        let piece = &buffer[..bytes];
        if piece.windows(10).any(|word| word == b"egress.end") {
            tokio::time::sleep(delay_of_ends).await;
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
    }
}
