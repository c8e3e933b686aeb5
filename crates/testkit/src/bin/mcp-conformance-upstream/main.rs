//! An upstream with the tools that the MCP conformance suite calls, for running the suite against the
//! gateway.
//!
//! Serves both eras on loopback and prints its URL as its only line of output. It has only tools: its lists
//! of resources and prompts are empty, and in the older era it sends no requests to the client.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a fixture that cannot be set up must stop")]

use std::{net::Ipv4Addr, sync::Arc};

use axum::{Router, serve::ListenerExt};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};

mod ask;
mod server;
mod tools;

#[tokio::main]
async fn main() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its number");
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(true)
        .with_allowed_hosts(["127.0.0.1", "localhost"])
        .with_allowed_origins([format!("http://{address}"), format!("http://localhost:{}", address.port())]);
    let sessions = Arc::<LocalSessionManager>::default();
    let service = StreamableHttpService::new(|| Ok(server::Server), sessions, config);
    let app = Router::new().nest_service("/mcp", service);
    println!("http://{address}/mcp");
    // Without TCP_NODELAY every response waits for the client's delayed acknowledgement.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a TCP socket"));
    axum::serve(listener, app).await.expect("serving ends with the process");
}
