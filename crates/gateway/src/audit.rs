//! The audit: one row per call, chained, committed before the caller gets its answer.

mod ledger; // commits what happened, many calls at a time
mod prune; // retention
mod query; // looking things up
mod record; // one call, before it has its place in the chain
mod seal; // signed heads, kept outside the store

pub use ledger::{Begun, Claim, Finish, Ledger, Unavailable, recover};
pub(crate) use ledger::{claim, intent, settle};
pub use prune::prune;
pub use query::{Filter, rows_after, search};
pub use record::{Decision, Record, Status};
pub use seal::{Error as SealError, Seal, Sealed};
