//! Measures the overhead of the gateway: `cargo bench -p cynode-gateway`, or `make bench` for all benchmarks.
//!
//! Calls the same tool of the same server directly, through the gateway, and through FastMCP's proxy. The
//! three take turns on one machine, so that other load affects them equally.
//!
//! `cargo bench -p cynode-gateway -- fast_paths` measures instead what each fast path buys.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a measurement that cannot be made must stop"
)]

mod gateway {
    pub(crate) mod fast_paths;
    pub(crate) mod load;
    pub(crate) mod setup;
}

use std::process::ExitCode;

use gateway::{
    load::{self, Calls},
    setup::{self, Setup},
};
use testkit::{Goal, Report};

const ROUNDS: usize = 5;
const CALLS: usize = 2_000;
const CONNECTIONS: usize = 64;

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "fast_paths") {
        return gateway::fast_paths::measure().await;
    }
    let setup = Setup::start().await;
    let mut report = Report::new("gateway");
    one_at_a_time(&setup, &mut report).await;
    many_at_a_time(&setup, &mut report).await;
    report.finish()
}

/// Measures the latency that the gateway adds to a call, including the commit of its audit row.
async fn one_at_a_time(setup: &Setup, report: &mut Report) {
    println!("one call at a time");
    let (mut added, mut added_99, mut denied_less) = (Vec::new(), Vec::new(), Vec::new());
    let (mut alone, mut all_through, mut all_denied) = (Vec::new(), Vec::new(), Vec::new());
    let mut lease_adds = Vec::new();
    for _ in 0..ROUNDS {
        let direct = load::one_by_one(&setup.direct(), CALLS).await;
        let through = load::one_by_one(&setup.through(), CALLS).await;
        let leased = load::one_by_one(&setup.leased(), CALLS).await;
        let denied = load::one_by_one(&setup.denied(), CALLS).await;
        lease_adds.push(leased.quantile(0.50) - through.quantile(0.50));
        added.push(through.quantile(0.50) - direct.quantile(0.50));
        added_99.push(through.quantile(0.99) - direct.quantile(0.99));
        denied_less.push(denied.quantile(0.50) / through.quantile(0.50));
        alone.push(direct.quantile(0.50));
        all_through.push(through.quantile(0.50));
        all_denied.push(denied.quantile(0.50));
    }
    report.add("direct call, p50", "ms", alone, None);
    report.add("call through the gateway, p50", "ms", all_through, None);
    report.add("denied call, p50", "ms", all_denied, None);
    report.add("gateway adds to a call, p50", "ms", added, Some(Goal::AtMost(0.4)));
    report.add("gateway adds to a call, p99", "ms", added_99, None);
    report.add("a lease adds to a call, p50", "ms", lease_adds, Some(Goal::AtMost(0.1)));
    report.add("denied call, share of an allowed one", "x", denied_less, Some(Goal::AtMost(1.0)));
}

/// Measures calls per second with concurrent connections.
async fn many_at_a_time(setup: &Setup, report: &mut Report) {
    println!("{CONNECTIONS} connections");
    let (mut ratio, mut direct_rate, mut through_rate, mut times) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let direct = rate(&setup.direct()).await;
        let through = rate(&setup.through()).await;
        ratio.push(through / direct);
        direct_rate.push(direct);
        through_rate.push(through);
        if let Some(proxy) = setup.proxy() {
            times.push(through / rate(&proxy).await);
        }
    }
    report.add("direct calls", "/s", direct_rate, None);
    report.add("calls through the gateway", "/s", through_rate, None);
    report.add("through the gateway, share of direct", "x", ratio, Some(Goal::AtLeast(0.5)));
    if times.is_empty() {
        println!("FastMCP's proxy is not installed; run `make tools`");
    } else {
        report.add("through the gateway, times FastMCP's proxy", "x", times, Some(Goal::AtLeast(10.0)));
    }
}

async fn rate(calls: &Calls) -> f64 {
    load::calls_per_second(calls, CONNECTIONS, setup::MEASURE_TIME).await
}
