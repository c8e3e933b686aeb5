//! A proxy before the gateway that delays reports of the ends of calls, or holds answers to their beginnings.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// Stopped when it is dropped.
pub(super) struct SlowGateway {
    url: String,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct Rules {
    delay_of_ends: Duration,
    /// Answers to `egress.begin` are passed on while it is true.
    passes_begins: watch::Receiver<bool>,
}

impl SlowGateway {
    /// Passes everything on to a gateway, and delays `egress.end`.
    pub(super) async fn start(gateway_url: &str, delay_of_ends: Duration) -> Self {
        Self::serve(gateway_url, Rules { delay_of_ends, passes_begins: watch::channel(true).1 }).await
    }

    /// Passes everything on to a gateway, and holds its answers to `egress.begin` until `true` is sent.
    pub(super) async fn holding_begins(gateway_url: &str) -> (Self, watch::Sender<bool>) {
        let (release, passes_begins) = watch::channel(false);
        let rules = Rules { delay_of_ends: Duration::ZERO, passes_begins };
        (Self::serve(gateway_url, rules).await, release)
    }

    async fn serve(gateway_url: &str, rules: Rules) -> Self {
        let (address, path) = gateway_url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let address = address.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/{path}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let client = listener.accept().await.unwrap().0;
                let gateway = TcpStream::connect(&address).await.unwrap();
                connections.spawn(pass_on(client, gateway, rules.clone()));
            }
        });
        Self { url, _serving: serving }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

async fn pass_on(client: TcpStream, gateway: TcpStream, rules: Rules) {
    let (from_client, to_client) = client.into_split();
    let (from_gateway, to_gateway) = gateway.into_split();
    let has_begun = AtomicBool::new(false);
    tokio::join!(
        copy_requests(from_client, to_gateway, &has_begun, rules.delay_of_ends),
        copy_answers(from_gateway, to_client, &has_begun, rules.passes_begins),
    );
}

async fn copy_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    has_begun: &AtomicBool,
    delay_of_ends: Duration,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        let piece = &buffer[..bytes];
        let names = |tool: &[u8]| piece.windows(tool.len()).any(|word| word == tool);
        if names(b"egress.end") {
            tokio::time::sleep(delay_of_ends).await;
        }
        if names(b"egress.begin") {
            has_begun.store(true, Ordering::SeqCst);
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
    }
}

async fn copy_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    has_begun: &AtomicBool,
    mut passes_begins: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        if has_begun.load(Ordering::SeqCst) && passes_begins.wait_for(|passes| *passes).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}
