//! Measures the numbers that the README claims: `make bench`.
//!
//! Throughput is given as a ratio to a bare client loop on the same server in the same run, since machines
//! differ and their load varies.

mod worker {
    pub(crate) mod bare;
    pub(crate) mod footprint;
    pub(crate) mod journal;
    pub(crate) mod leases;
    pub(crate) mod restate;
    pub(crate) mod scale;
    pub(crate) mod throughput;
    pub(crate) mod turns;
}

use testkit::Report;
use worker::{footprint, journal, leases, restate, scale, throughput, turns};

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("worker");
    if wanted("throughput") {
        throughput::measure(&mut report).await;
    }
    if wanted("journal") {
        journal::measure(&mut report).await;
    }
    if wanted("start") {
        footprint::start_to_ready(&mut report).await;
    }
    if wanted("idle") {
        footprint::idle_cpu(&mut report).await;
    }
    if wanted("memory") {
        footprint::memory_in_flight(&mut report).await;
    }
    if wanted("compose") {
        turns::compose(&mut report);
    }
    if wanted("turns") {
        turns::measure(&mut report).await;
    }
    if wanted("leases") {
        leases::measure(&mut report).await;
    }
    if wanted("scale") {
        scale::measure(&mut report).await;
    }
    if wanted("restate") {
        restate::measure(&mut report).await;
    }
    report.finish()
}
