//! The audit: one row per call, chained, committed before the caller gets its answer.

mod appender; // adds rows, where the store is a file
mod begun_log; // calls that began, where a file is enough
mod chain; // where rows are added
mod keys; // calls that have their effect once
mod ledger; // the way in
mod not_written; // why the audit did not take something
mod notes; // what calls tell the audit
mod prune; // retention
mod query; // looking things up
mod record; // one call, before it has its place in the chain
mod recovery; // calls that were cut off
mod seal; // signed heads, kept outside the store
mod writer; // commits what happened, many calls at a time

pub use chain::{Ends, ends};
pub use keys::{Begun, Claim, Finish};
pub(crate) use keys::{claim, settle};
pub use ledger::{Ledger, NotAnnounced, Unavailable, Unrecorded};
pub use notes::WasBegun;
pub use prune::prune;
pub use query::{Filter, rows_after, search};
pub use record::{Decision, Record, Status};
pub(crate) use recovery::intent;
pub use recovery::recover;
pub use seal::{Error as SealError, Seal, Sealed};
