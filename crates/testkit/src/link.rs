//! A network path that can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    select,
    sync::watch,
    task::JoinSet,
};

/// How much is passed on at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Passes TCP connections on to a server. Cut, it passes nothing on, as a network that loses every packet:
/// the connections stay, and what was sent arrives when it is whole again.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    held: watch::Sender<Vec<u8>>,
    _serving: JoinSet<()>,
}

impl Link {
    /// Makes a path to `server`, as `host:port`.
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (is_cut, seen) = watch::channel(false);
        let held = watch::Sender::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, server.to_owned(), Valve { is_cut: seen, held: held.clone() }));
        Self { address, is_cut, held, _serving: serving }
    }

    /// Returns where clients connect to, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Waits until clients sent a text that is not passed on, since the link is cut.
    pub async fn wait_until_holding(&self, text: &str) {
        let mut held = self.held.subscribe();
        let is_there = |held: &Vec<u8>| held.windows(text.len()).any(|part| part == text.as_bytes());
        held.wait_for(is_there).await.expect("the link is there");
    }

    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// The switch that lets bytes through.
#[derive(Clone)]
struct Valve {
    is_cut: watch::Receiver<bool>,
    /// What clients sent since the link was cut.
    held: watch::Sender<Vec<u8>>,
}

async fn serve(listener: TcpListener, server: String, valve: Valve) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass_on(client, server.clone(), valve.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn pass_on(client: TcpStream, server: String, valve: Valve) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("a TCP socket");
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let back = Valve { held: watch::Sender::default(), ..valve.clone() };
    tokio::join!(copy(from_client, to_server, valve), copy(from_server, to_client, back));
}

/// Copies one direction to its end. What comes while the link is cut is held.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut valve: Valve) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut held, mut has_ended) = (Vec::new(), false);
    while !has_ended || !held.is_empty() {
        let is_cut = *valve.is_cut.borrow_and_update();
        if !is_cut && !held.is_empty() {
            if to.write_all(&held).await.is_err() {
                break;
            }
            held.clear();
            valve.held.send_modify(Vec::clear);
            continue;
        }
        select! {
            // Cancel-safe. Without its link a connection ends.
            changed = valve.is_cut.changed() => if changed.is_err() {
                break;
            },
            // Cancel-safe.
            read = from.read(&mut buffer), if !has_ended => match read {
                Ok(0) | Err(_) => has_ended = true,
                Ok(length) => {
                    held.extend_from_slice(&buffer[..length]);
                    if is_cut {
                        valve.held.send_modify(|all| all.extend_from_slice(&buffer[..length]));
                    }
                }
            },
        }
    }
    drop(to.shutdown().await);
}
