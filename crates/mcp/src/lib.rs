//! An MCP client for one server over streamable HTTP, for tools only.
//!
//! Supports two eras of the protocol: the newer era (2026-07-28, without sessions) is tried first, the older
//! era (2025-11-25 and before, with `initialize`) is the fallback. The client never repeats a call of unknown
//! fate without an idempotency key. It declares no capabilities (no sampling, no elicitation, no roots),
//! follows no redirects and uses no proxy.

mod client;
mod connection;
mod direct;
mod error;
mod exchange;
mod failure;
mod guard;
mod lease;
mod list;
mod raw;
mod reply;
mod token;

pub use client::{Call, Client, Options, Tool};
pub use connection::{Connection, Era, Hint, OpenError, client_config};
pub use direct::{Direct, DirectCall, has_header_arguments};
pub use error::{Error, sanitize};
pub use exchange::Http;
pub use failure::{Failure, Fate, Retry};
pub use guard::AddressFilter;
pub use list::raw_tools;
pub use raw::{Tap, parse_call_response, parse_list_response};
pub use reply::Reply;
pub use token::Token;

/// The key in `_meta` that carries the idempotency key of a call.
pub const IDEMPOTENCY_KEY: &str = "dev.cynode/idempotency-key";
