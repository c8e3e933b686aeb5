//! Real servers, real processes and real signals for tests and benchmarks.
//!
//! What is under test is never faked: NATS is nats-server, a worker is the built binary, a crash is SIGKILL.
//! Only model servers and MCP peers have fakes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot be set up must stop"
)]

mod binaries;
mod browser;
mod chat_client;
mod clock;
mod cluster;
mod collector;
mod engines;
mod errand;
mod gateway;
mod gateway_process;
mod link;
mod logs;
mod model;
mod nats;
mod node_process;
mod orchestrator;
mod orchestrator_process;
mod port;
mod postgres;
mod process;
mod real_model;
mod report;
mod restate;
mod runner_process;
mod scripted;
mod upstream;
mod wait;
mod worker;

pub use binaries::{
    binary, conformance_suite, cynodectl, deploy_linter, loopback_preload, nats_server, node_api_clients,
    old_nats_server, open_webui, postgres_available, postgres_bin, promtool, python, python_api_clients,
    python_grammars, python_newer, schemathesis, server_everything, server_filesystem, systemd_analyze,
    workflow_runner, workspace,
};
pub use browser::{Browser, Message, browser_available};
pub use chat_client::{ChatClient, ChatEvent, ChatResponse, ChatStream, Streamed, chat_body};
pub use clock::TestClock;
pub use cluster::Cluster;
pub use collector::{Collector, Span};
pub use engines::grammar_refusals;
pub use errand::{Errands, QuickErrands};
pub use gateway::{Answer, Gateway, RecordedCall, Tool};
pub use gateway_process::{AdminResponse, GatewayProcess};
pub use link::Link;
pub use model::{Model, ModelRequest, Script, typical};
pub use nats::Nats;
pub use node_process::{NodeBuilder, NodeProcess};
pub use orchestrator::{Orchestrator, chat, handoff, job_step, review, schedule, verify};
pub use orchestrator_process::{OrchestratorBuilder, OrchestratorProcess};
pub use port::free_port;
pub use postgres::Postgres;
pub use process::{Finished, Process, cpu_of, run};
pub use real_model::RealModel;
pub use report::{Goal, Report};
pub use restate::{Restate, RestatePrograms};
pub use runner_process::{RunnerBuilder, RunnerProcess};
pub use scripted::ScriptedServer;
pub use upstream::ConformanceUpstream;
pub use wait::{eventually, eventually_within};
pub use worker::{Worker, WorkerBuilder};
