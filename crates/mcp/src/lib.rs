//! The MCP client of our processes: one server, streamable HTTP, tools only.
//!
//! It speaks both eras of the protocol: 2026-07-28 first, `initialize` of 2025-11-25 where that is not understood.
//! It never repeats a call of unknown fate without an idempotency key, offers the server nothing to ask of us
//! (no sampling, no elicitation, no roots), follows no redirect and uses no proxy.

mod client; // the public face: list, call, repeat where that is safe
mod connection; // one handshake and what follows from it
mod direct; // one call of the newer era, without rmcp's client between
mod error; // what went wrong, and whether it may pass
mod exchange; // one HTTP exchange: token, limits, errors that can be told apart
mod failure; // from the errors of rmcp to ours, and what became of the call
mod guard; // which addresses a client may connect to
mod indirect; // which tools are not called that way
mod list; // the list of tools, page by page
mod raw; // what rmcp's types would lose of a message
mod reply; // a result as text, no longer than allowed
mod token; // the bearer token and its file

pub use client::{Call, Client, Options, Tool};
pub use connection::{Connection, Era, Hint, NotOpened, introduction};
pub use direct::{Direct, FIRST_DIRECT, can_be_named};
pub use error::{Error, told};
pub use exchange::Http;
pub use failure::{Again, Failure, Fate};
pub use guard::AddressFilter;
pub use indirect::{Indirect, wants_headers};
pub use list::raw_tools;
pub use raw::{Tap, read_call, read_list};
pub use reply::Reply;
pub use token::Token;

/// The key in `_meta` under which a call names the effect that it must have at most once.
pub const IDEMPOTENCY_KEY: &str = "dev.cynode/idempotency-key";
