//! The errand of three model turns and four tool calls as a Restate service, for comparison with the worker.
//!
//! Uses the same model server, tool server and MCP client. Each model reply and each tool result is a
//! journaled step.

mod errand;
mod model;

use std::{env, error::Error, time::Duration};

use restate_sdk::prelude::*;
use tokio::net::TcpListener;

use errand::Errands;
use model::Model;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, tools] = arguments.as_slice() else {
        return Err("usage: restate-peer MODEL_URL TOOLS_URL".into());
    };
    let tools = mcp::Client::new(mcp::Options {
        url: tools.clone(),
        token_file: None,
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(60),
        max_result_bytes: 32 * 1024,
        fast_path: true,
        profile: None,
    })?;
    let errands = Errands { model: Model::at(model)?, tools };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // Connections inherit TCP_NODELAY. The SDK does not set it, and without it small frames wait for
    // acknowledgements.
    socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
    println!("listening on {}", listener.local_addr()?);
    HttpServer::new(Endpoint::builder().bind(errands).build()).serve(listener).await;
    Ok(())
}
