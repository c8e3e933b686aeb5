//! Measures what the orchestrator adds to a chat: `make bench`.
//!
//! Each figure compares two ways in one run, which take turns, so that other load affects them equally.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a measurement that cannot be made must stop"
)]

mod orchestrator {
    pub(crate) mod direct;
    pub(crate) mod litellm;
    pub(crate) mod manager;
    pub(crate) mod memory;
    pub(crate) mod times;
}

use orchestrator::{direct, manager, memory};
use testkit::Report;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("orchestrator");
    if wanted("direct") {
        direct::measure(&mut report).await;
    }
    if wanted("manager") {
        manager::measure(&mut report).await;
    }
    if wanted("memory") {
        memory::measure(&mut report).await;
    }
    report.finish()
}
