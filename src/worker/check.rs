//! `cynode-pma check`: would an instance start here?

use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain, Provision, ProvisionError};
use intake::Gate;
use secrets::signing_key;
use settings::Report;

use super::{
    resources::{self, SharedParts},
    route, sizing,
};
use crate::{
    config::{Backend, Config},
    context::Preamble,
    instructions::Bundle,
    recording::Recording,
    telemetry::{Health, Metrics},
    tools::NoListener,
};

/// Checks everything that a start needs, and goes on after a failure. Changes nothing.
pub async fn check(config: Config) -> Report {
    let mut report = Report::default();
    report.good("role", config.role);
    let bundle = Bundle::load(config.role, &config.instructions);
    match &bundle {
        Ok(bundle) => {
            report.good("bundle", format!("{} ({})", bundle.path.display(), &bundle.hash[..12]));
        }
        Err(error) => report.misconfigured("bundle", error, "Correct instructions.root, or the folder."),
    }
    match broker::connect(&config.nats.options).await {
        Ok(broker) => {
            let (url, server) =
                (broker::redact_url(&config.nats.options.url), broker.client.server_info().version);
            report.good("nats", format!("{url}, nats-server {server}"));
            check_streams(&config, &broker, &mut report).await;
        }
        Err(error) => {
            report.failed("nats", Chain(&error), "Start nats-server, or correct nats.url or --nats-url.");
            report.skipped("streams", "they need NATS");
        }
    }
    if let Some(file) = &config.security.signing_key_file {
        match signing_key::read(file) {
            Ok(_) => report.good("signing", file.display()),
            Err(error) => report.misconfigured("signing", &error, "Correct security.signing_key_file."),
        }
    }
    let (breakers, _) = Gate::new();
    let (health, metrics) = (Arc::new(Health::starting()), Arc::new(Metrics::new()));
    let shared = SharedParts { health: &health, metrics: &metrics, breakers };
    check_model(&config, &shared, bundle.ok().as_ref(), &mut report).await;
    check_gateway(&config, &shared, &mut report).await;
    config.warnings.iter().for_each(|warning| report.remark("setting", warning));
    report
}

async fn check_streams(config: &Config, broker: &Broker, report: &mut Report) {
    let how = match config.nats.provision {
        // A check never creates streams; it reports the missing ones.
        Provision::Create | Provision::Verify => Provision::Verify,
        Provision::None => Provision::None,
    };
    match broker::provision(broker, how, config.role, sizing(config)).await {
        Ok(_) => report.good("streams", "as expected"),
        Err(ProvisionError::Drifted(drifts)) => {
            let differences: Vec<String> = drifts.iter().map(ToString::to_string).collect();
            let differences = differences.join("; ");
            if config.nats.provision == Provision::Create {
                let what = "a start creates what is missing and leaves what differs as it is";
                report.remark("streams", format!("{what}: {differences}"));
            } else {
                let to_do =
                    "Run `cynodectl provision`, which creates what is missing and names what differs.";
                report.failed("streams", differences, to_do);
            }
        }
        Err(error) => report.failed("streams", Chain(&error), ""),
    }
}

async fn check_model(
    config: &Config,
    shared: &SharedParts<'_>,
    bundle: Option<&Bundle>,
    report: &mut Report,
) {
    let inference = match resources::inference(config, shared) {
        Ok(inference) => inference,
        Err(error) => return report.misconfigured("model", &error, ""),
    };
    if !inference.probe().await {
        let to_do = match &config.inference.backend {
            Backend::Endpoints { local: None, .. } => {
                "Start cynode-orchestrator, or correct inference.egress_url or the worker's token."
            }
            _ => "Start the model server, or correct inference.base_url or inference.token_file.",
        };
        return report.failed("model", format!("{} does not answer", route(config)), to_do);
    }
    report.good("model", route(config));
    match bundle {
        Some(bundle) => inference.try_out(&Preamble::new(bundle, config.inference.skills), report).await,
        None => report.skipped("chat", "it needs the bundle"),
    }
}

async fn check_gateway(config: &Config, shared: &SharedParts<'_>, report: &mut Report) {
    let tools = match resources::tools(config, shared, Duration::ZERO) {
        Ok(tools) => tools,
        Err(error) => return report.misconfigured("gateway", &error, ""),
    };
    if let Backend::Replay { recording } = &config.inference.backend
        && let Err(error) = Recording::read_from(recording, &tools)
    {
        report.misconfigured("replay", &error, "Correct inference.recording.");
    }
    let Some(gateway) = &config.gateway else {
        return report.remark("gateway", "none: a worker without tools; gateway.url names one");
    };
    match tools.catalogue(None, &NoListener).await {
        Ok(listed) => {
            let tools = match listed.tools().count() {
                0 => "no tools without a lease".to_owned(),
                count => format!("{count} tools for this role"),
            };
            report.good("gateway", format!("{}, {tools}", gateway.url));
        }
        Err(error) => report.failed(
            "gateway",
            format!("{}: {}", gateway.url, Chain(&error)),
            "Start cynode-gateway, correct gateway.url, or issue a token with `cynodectl tokens issue`.",
        ),
    }
}
