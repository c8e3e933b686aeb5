//! `cynode-node check`: can this machine run jobs, and would a node find NATS and the gateway?

use broker::Chain;
use settings::Report;

use super::{gateway, start};
use crate::{config::Config, engines::Engines};

const NO_ENGINE: &str = "Install or enable what is missing: docs/nodes.md says how for each engine.";

/// Opens each engine and tries to escape from it; then reaches NATS and the gateway, unless only the engines
/// are asked for.
pub async fn check(config: Config, only_engines: bool) -> Report {
    let mut report = Report::default();
    check_engines(&config, &mut report).await;
    if only_engines {
        return report;
    }
    match broker::connect(&config.nats.options).await {
        Ok(broker) => {
            let url = broker::redact_url(&config.nats.options.url);
            report.good("nats", format!("{url}, nats-server {}", broker.client.server_info().version));
        }
        Err(error) => report.failed("nats", Chain(&error), "Start nats-server, or correct nats.url."),
    }
    let url = &config.gateway.url;
    match gateway(&config) {
        Err(error) => report.misconfigured("gateway", &error, ""),
        Ok(client) => match client.tools().await {
            Ok(tools) => {
                report.good("gateway", format!("{url}, {} tools without a job's lease", tools.len()));
            }
            Err(error) => report.failed(
                "gateway",
                format!("{url}: {}", Chain(&error)),
                "Start cynode-gateway, correct gateway.url, or issue a token with `cynodectl tokens issue \
                 node`.",
            ),
        },
    }
    report
}

async fn check_engines(config: &Config, report: &mut Report) {
    let host = match start::open_host(config) {
        Ok(host) => host,
        Err(error) => {
            report.failed("folder", Chain(&error), "Stop the node that uses it, or correct node.data.");
            return report.skipped("engine", "they need the folder");
        }
    };
    if let Err(error) = start::remove_leftovers(&host).await {
        report.failed("folder", Chain(&error), "");
        return report.skipped("engine", "they need the folder");
    }
    let engines = Engines::open(&host, &config.sandbox.engines).await;
    for status in &engines.status {
        let name = status.engine.as_str();
        // The notes say what could not be tried, and why.
        let escaped = status.attempts.iter().filter(|attempt| !attempt.held && !attempt.untried);
        let escaped = escaped.map(|attempt| {
            format!("escaped by {}: {}", attempt.name, attempt.detail.as_deref().unwrap_or("no detail"))
        });
        let notes: Vec<String> = status.notes.iter().cloned().chain(escaped).collect();
        if status.offered {
            let held = status.attempts.len();
            report.good("engine", format!("{name}: {held} attempts to escape, all held"));
        } else if engines.offered.is_empty() {
            report.failed("engine", format!("{name} not offered: {}", notes.join("; ")), NO_ENGINE);
        } else {
            report.remark("engine", format!("{name} not offered: {}", notes.join("; ")));
        }
    }
    if engines.status.is_empty() {
        report.failed("engine", "none is configured", "Name one in sandbox.engines.");
    }
}
