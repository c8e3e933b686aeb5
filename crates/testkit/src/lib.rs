//! Real servers, real processes and real signals for the tests and benchmarks.
//!
//! Nothing here stands in for the thing under test: NATS is nats-server, a worker is the binary, a crash is
//! SIGKILL.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot be set up must stop"
)]

mod binaries; // where the programs are
mod browser; // a Chromium of one's own
mod cluster; // three nats-servers that are one
mod collector; // takes traces
mod errand; // handoffs whose turns and effects can be counted
mod gateway; // an MCP server in place of the orchestrator's gateway
mod gateway_process; // cynode-gateway as a process
mod logs; // lines of either format
mod model; // a model server that does as it is told
mod nats; // a nats-server of one's own
mod orchestrator; // publishes handoffs, collects answers
mod port; // numbers that are free
mod postgres; // a PostgreSQL server of one's own
mod process; // a child that does not outlive its test
mod report; // numbers and their goals
mod restate; // a restate-server and a service of it
mod scripted; // an MCP server that says what a test wants said
mod upstream; // an MCP server with what the conformance suite calls
mod wait; // conditions with a deadline
mod worker; // cynode-pma as a process

pub use binaries::{
    binary, conformance_suite, cynodectl, deploy_linter, loopback_preload, nats_server, old_nats_server,
    postgres_available, postgres_bin, promtool, python, python_newer, server_everything, server_filesystem,
    systemd_analyze, workspace,
};
pub use browser::{Browser, Message, browser_available};
pub use cluster::Cluster;
pub use collector::{Collector, Span};
pub use errand::{Errands, QuickErrands};
pub use gateway::{Answer, Called, Gateway, Tool};
pub use gateway_process::{Answered, GatewayProcess};
pub use model::{Asked, Model, Script, typical};
pub use nats::Nats;
pub use orchestrator::{Orchestrator, chat, handoff, schedule, verify};
pub use port::free_port;
pub use postgres::Postgres;
pub use process::{Finished, Process, cpu_of, run};
pub use report::{Goal, Report};
pub use restate::{Restate, RestatePrograms};
pub use scripted::Scripted;
pub use upstream::ConformanceUpstream;
pub use wait::{eventually, eventually_within};
pub use worker::{Worker, WorkerBuilder};
