//! The one way out of a sandbox that may reach hosts: an HTTP proxy of the node that listens in the sandbox's
//! network namespace and connects to allowed hosts only, at addresses that it checked. Also the relays for
//! unix sockets.

mod allowlist;
mod request;

use std::{
    fmt,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

pub(crate) use allowlist::Allowlist;
use allowlist::Refusal;
use policy::Host;
use request::Request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

/// Connections of one job at the same time, per listener.
const MAX_CONNECTIONS: usize = 64;
/// The longest request head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the proxy until dropped.
pub(crate) async fn serve_proxy(listener: TcpListener, allowed: Arc<Allowlist>) {
    let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
    serve(accept, |stream| proxy(stream, allowed.clone())).await;
}

/// Connects each client of a socket in the sandbox to a socket of the host, until dropped.
pub(crate) async fn serve_socket(listener: UnixListener, host: PathBuf) {
    let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
    let relay = |mut inside: UnixStream| {
        let host = host.clone();
        async move {
            let mut outside = UnixStream::connect(host).await?;
            copy_bidirectional(&mut inside, &mut outside).await?;
            Ok(())
        }
    };
    serve(accept, relay).await;
}

async fn serve<S, A, H>(accept: impl Fn() -> A, handle: impl Fn(S) -> H)
where
    A: Future<Output = io::Result<S>>,
    H: Future<Output = io::Result<()>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match accept().await {
            Ok(stream) => {
                let handled = handle(stream);
                connections.spawn(async move {
                    if let Err(error) = handled.await {
                        tracing::debug!(%error, "Connection of a job ended.");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "Connection of a job not accepted; retrying.");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn proxy(mut client: TcpStream, allowed: Arc<Allowlist>) -> io::Result<()> {
    let head = timeout(HEAD_TIMEOUT, read_head(&mut client)).await.map_err(io::Error::from)??;
    let request = match request::parse(&head) {
        Ok(request) => request,
        Err(problem) => return refuse(&mut client, "400 Bad Request", &problem).await,
    };
    let addresses = match resolve(&allowed, &request).await {
        Ok(addresses) => addresses,
        Err(Unresolved::Refused(refusal)) => {
            let (host, port) = (&request.host, request.port);
            tracing::info!(%host, port, reason = %refusal, "Connection of a job refused.");
            allowed.note(host, port, refusal);
            return refuse(&mut client, "403 Forbidden", &refusal).await;
        }
        Err(Unresolved::NoAddress) => {
            return refuse(&mut client, "502 Bad Gateway", &"the host has no address").await;
        }
    };
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice())).await;
    let Ok(Ok(mut server)) = connected else {
        return refuse(&mut client, "502 Bad Gateway", &"the host does not answer").await;
    };
    if request.is_tunnel {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    }
    server.write_all(&request.forward).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Why there is no address to connect to.
enum Unresolved {
    Refused(Refusal),
    NoAddress,
}

/// Resolves the host of a request, once, to the addresses that may be connected to. The connection is made to
/// one of these: a name that resolves to another address later gains nothing by it.
async fn resolve(allowed: &Allowlist, request: &Request) -> Result<Vec<SocketAddr>, Unresolved> {
    let (host, port) = (&request.host, request.port);
    allowed.check_listed(host, port).map_err(Unresolved::Refused)?;
    let resolved: Vec<IpAddr> = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match timeout(RESOLVE_TIMEOUT, lookup_host((name.as_str(), port))).await {
            Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
            _ => return Err(Unresolved::NoAddress),
        },
    };
    if resolved.is_empty() {
        return Err(Unresolved::NoAddress);
    }
    allowed.permit(host, port, resolved).map_err(Unresolved::Refused)
}

async fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || client.read_buf(&mut head).await? == 0 {
            return Err(io::Error::other("request head too long or incomplete"));
        }
    }
    Ok(head)
}

async fn refuse(client: &mut TcpStream, status: &str, problem: &impl fmt::Display) -> io::Result<()> {
    let body = format!("{problem}\n");
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(text.as_bytes()).await?;
    client.shutdown().await
}
