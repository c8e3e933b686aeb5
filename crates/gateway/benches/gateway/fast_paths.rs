//! What each fast path buys: the same calls through gateways that differ in one setting.

use std::{process::ExitCode, time::Duration};

use testkit::Report;

use super::{
    load::{self, Calls},
    setup::Setup,
};

const ROUNDS: usize = 7;
const CALLS: usize = 1_500;
const CONNECTIONS: usize = 64;
const MEASURE_TIME: Duration = Duration::from_secs(2);
const SETTINGS: [&str; 3] = ["mcp.fast_path", "audit.fast_append", "upstreams.fast_path"];

/// The measurements of one way of calling.
struct Way {
    name: &'static str,
    calls: Calls,
    /// Median latency in milliseconds, in each round.
    latency: Vec<f64>,
    /// Calls per second, in each round.
    rate: Vec<f64>,
}

impl Way {
    fn new(name: &'static str, calls: Calls) -> Self {
        Self { name, calls, latency: Vec::new(), rate: Vec::new() }
    }
}

/// Measures calls with every fast path, without each one, and without any. They take turns, so that other
/// load affects them equally.
pub(crate) async fn measure() -> ExitCode {
    let with_all = Setup::start_with(&[]).await;
    let mut setups = Vec::new();
    for setting in SETTINGS {
        setups.push(Setup::start_with(&[format!("{setting}=false")]).await);
    }
    let without_any = Setup::start_with(&SETTINGS.map(|setting| format!("{setting}=false"))).await;
    let slow_client = |calls: Calls| Calls { fast_path: false, ..calls };
    let mut ways = vec![
        Way::new("all fast paths", with_all.through()),
        Way::new("gateway.fast_path", slow_client(with_all.through())),
    ];
    ways.extend(SETTINGS.iter().zip(&setups).map(|(setting, setup)| Way::new(setting, setup.through())));
    ways.push(Way::new("any fast path", slow_client(without_any.through())));
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.latency.push(load::one_by_one(&way.calls, CALLS).await.quantile(0.50));
        }
        for way in &mut ways {
            way.rate.push(load::calls_per_second(&way.calls, CONNECTIONS, MEASURE_TIME).await);
        }
    }
    let mut report = Report::new("fast_paths");
    let [all, others @ ..] = &ways[..] else { panic!("nothing was measured") };
    report.add("call with all fast paths, p50", "ms", all.latency.clone(), None);
    report.add("calls with all fast paths", "/s", all.rate.clone(), None);
    for way in others {
        let ratios = |of: &[f64], to: &[f64]| of.iter().zip(to).map(|(of, to)| of / to).collect();
        let name = way.name;
        report.add(&format!("time of a call without {name}"), "x", ratios(&way.latency, &all.latency), None);
        report.add(&format!("calls per second without {name}"), "x", ratios(&way.rate, &all.rate), None);
    }
    report.finish()
}
