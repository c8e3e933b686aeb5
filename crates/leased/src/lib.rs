//! Calls to the gateway under a lease, which says on whose behalf an agent works. A lease is renewed when it
//! is about to expire, and given back when what it was issued for is done.
//!
//! The gateway verifies a lease with every call. Here it is only read, to know when it expires.

mod calls;
mod held;
mod retry;

pub use calls::{CallFailure, call, fresh, give_back, keep_renewed, output, renew, send, under_lease};
pub use held::HeldLease;
pub use retry::retry;

#[cfg(test)]
mod tests;
