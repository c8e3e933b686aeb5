use std::net::TcpListener;

/// A port on loopback that nobody uses at the moment, for a server that cannot choose one itself. Another can be faster.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}
