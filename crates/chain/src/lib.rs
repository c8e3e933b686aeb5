//! Chains of messages in a stream: the journal of a handoff or job and, as its last message, the answer or
//! result.
//!
//! Every message is stored under a compare-and-set over the whole chain, so that one process writes at a
//! time and there is one last message. A process whose message is refused because another one wrote to the
//! chain is **fenced** and writes nothing more.
//!
//! - [`Streams`]: publishes and reads, and waits while streams are unavailable
//! - [`Tail`]: the end of a chain that this process owns
//! - [`Ownership`]: how recently that was confirmed
//!
//! Which delivery may claim a chain is decided by the crate `protocol`.

mod commit;
mod messages;
mod ownership;
mod streams;
mod tail;
mod watch;

pub use commit::Committed;
pub use ownership::Ownership;
pub use streams::{Outages, Streams};
pub use tail::{Description, Loss, Tail};

#[cfg(test)]
mod tests;
