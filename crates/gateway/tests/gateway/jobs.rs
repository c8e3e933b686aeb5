//! Jobs: from `sandbox.run` over NATS to rows and artifacts. Tests play the nodes on real streams.

mod cancel;
mod console;
mod leases;
mod logs;
mod nodes;
mod outages;
mod run;
pub(crate) mod support;
