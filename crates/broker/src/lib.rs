//! NATS access shared by every process: a connection, provisioned streams, publishes with a known outcome and
//! confirmed acknowledgements.
//!
//! It knows nothing of handoffs and makes no decisions; the caller decides what an outcome means.

mod confirm;
mod connect;
mod layout;
mod on_demand;
mod provision;
mod publish;
mod read;
mod request;
pub mod retry;
mod scan;
mod spill;

pub use confirm::{AckError, confirm};
pub use connect::{
    Auth, Broker, ConnectError, MIN_SERVER, Options, Tls, connect, is_inbox_prefix, redact_url,
};
pub use layout::{LayoutMismatch, MisplacedSubject, check_layout};
pub use on_demand::{OnDemand, Unavailable};
pub use provision::{
    Drift, Provision, ProvisionError, Provisioned, kept_for, provision, provision_queue, provision_streams,
};
pub use publish::{Expect, PublishError, Stored, Unconfirmed, publish, publish_within};
pub use read::{ReadError, last_on, message_at, next_on};
pub use request::NoResponse;
pub use scan::{all_on, read_batch, scan_newest_first};
pub use spill::{SpillError, fetch, spill};

use std::{error::Error, fmt};

/// Displays an error and its sources on one line, separated by colons.
#[derive(Debug)]
pub struct Chain<'e>(pub &'e dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            // Many errors end with the text of their source.
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            next = error.source();
        }
        Ok(())
    }
}
