//! What every process of ours needs of NATS: a connection, streams as they should be, publishes whose outcome
//! is known, acknowledgements that were heard.
//!
//! It knows no handoff and decides nothing; whoever calls decides what an outcome means.

mod confirm; // acknowledgements that the server answered
mod connect; // one connection, its options, its comings and goings
mod layout; // whether the streams that are there are laid out as wanted
mod provision; // streams and consumers: make, compare
mod publish; // publish and know what became of it
mod read; // single messages out of a stream
mod request; // ask the server, and do not wait for ever
pub mod retry; // the one place that knows how to wait before trying again
mod scan; // many messages out of a stream
mod spill; // bodies too large for a message

pub use confirm::{AckError, confirm};
pub use connect::{
    Auth, Broker, ConnectError, MIN_SERVER, Options, Tls, connect, is_inbox_prefix, without_secrets,
};
pub use layout::{Misplaced, OtherLayout, check_layout};
pub use provision::{Drift, Provision, ProvisionError, Provisioned, kept_for, provision};
pub use publish::{Expect, PublishError, Stored, Unheard, publish, publish_within};
pub use read::{ReadError, all_on, last_on, last_under, message_at, next_on};
pub use request::Silence;
pub use scan::{newest_under, some_under};
pub use spill::{SpillError, fetch, spill};

use std::{error::Error, fmt};

/// An error with everything behind it, on one line.
#[derive(Debug)]
pub struct Chain<'e>(pub &'e dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}
