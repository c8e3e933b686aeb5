//! Measures what the workflow engine costs: `make bench`.
//!
//! The programs are real: nats-server, the gateway on SQLite, a worker with the offline model, and the runner
//! in Python. The engine's own time is what is left of a workflow without the work of managers in the same
//! run, since machines differ and their load varies.

mod workflow {
    pub(crate) mod handoffs;
    pub(crate) mod memory;
    pub(crate) mod overhead;
    pub(crate) mod stage;
    pub(crate) mod takeover;
}

use testkit::Report;
use workflow::{memory, overhead, takeover};

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("workflow");
    if wanted("overhead") {
        overhead::measure(&mut report).await;
    }
    if wanted("memory") {
        memory::measure(&mut report).await;
    }
    if wanted("takeover") {
        takeover::measure(&mut report).await;
    }
    report.finish()
}
