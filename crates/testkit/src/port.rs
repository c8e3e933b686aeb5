//! Free ports.

use std::net::TcpListener;

/// Returns a loopback port that is free at the moment, for a server that cannot choose one itself. Another
/// process may take it in the meantime.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}
