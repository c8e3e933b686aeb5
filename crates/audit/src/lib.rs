//! The audit: one row per call in a hash chain, committed before the caller gets its answer.
//!
//! [`Ledger`] is the only way to write; a single writer task commits the rows in groups.

mod appender;
mod chain;
pub mod edge;
mod in_flight_log;
mod keys;
mod ledger;
mod messages;
mod metrics;
mod prune;
mod query;
mod record;
mod recovery;
mod seal;
mod write_error;
mod writer;

pub use chain::{Bounds, bounds};
pub use keys::{ClaimOutcome, KeyClaim, KeyOutcome, claim_key, settle_key};
pub use ledger::{BeginError, Ledger, Unavailable, Unrecorded};
pub use messages::Announcement;
pub use metrics::Metrics;
pub use prune::prune;
pub use query::{Filter, row_of_call, rows_after, search};
pub use record::{Decision, Record, Status};
pub use recovery::{in_flight_row, recover};
pub use seal::{Error as SealError, Seal, Sealed};
