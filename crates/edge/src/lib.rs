//! Enforcement on a node: decides on the calls of agents that run there, under a lease that is bound to the
//! node, without asking the gateway for each call.
//!
//! - [`Edge`]: the node's leases, their audit files, and what ships these
//! - [`JobEndpoint`]: the MCP endpoint of one job
//! - [`EdgeSettings`], [`UpstreamSettings`]: what the node configures
//!
//! The decision is [`policy::decide`], on a lease that was verified offline. Tools of MCP servers on the node
//! are called here; every other tool is passed on to the gateway under the node's token and the lease.
//! A call that is answered here has its lines in the lease's audit file before the answer.

mod audit_file;
mod call;
mod clock;
mod edge;
mod endpoint;
mod error;
mod keys;
mod limited;
mod local;
mod outcome;
mod pass_on;
mod reconcile;
mod renewal;
mod server;
mod session;
mod settings;
mod shared;
mod ship;
mod sidecar;
mod unclosed;
mod validity;

pub use audit_file::{AppendError, AuditFile};
pub use call::{Answer, Call};
pub use clock::Clock;
pub use edge::Edge;
pub use endpoint::JobEndpoint;
pub use error::Error;
pub use session::{Session, Unrecorded};
pub use settings::{EdgeLimits, EdgeSettings, InvalidUpstream, UpstreamSettings};
pub use shared::EdgeCounts;
pub use ship::{Shipment, ship_file};
