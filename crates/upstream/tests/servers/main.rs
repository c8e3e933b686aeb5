//! Tests upstreams against real servers, over HTTP and as processes.

mod breaking;
mod calling;
mod direct;
mod http;
mod limits;
mod listing;
mod process;
mod support;
