//! `cynodectl provision`: streams, consumers and buckets.

use broker::{Broker, Drift, Provision};
use serde_json::json;
use subjects::{
    Role,
    streams::{self, Sizing},
};

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

/// Creates what is missing for both roles, for the gateway, for jobs and for workflows. Existing ones are
/// left unchanged. A node creates the consumers of its queues by itself.
pub(crate) async fn run(broker: &Broker, command: &cli::Provision, as_json: bool) -> Result<Exit, Error> {
    let replicas = usize::from(command.replicas);
    let sizing = Sizing { replicas, ack_wait: command.ack_wait, dedupe_window: command.dedupe_window };
    let mut drifts: Vec<Drift> = Vec::new();
    for role in Role::ALL {
        let found = broker::provision(broker, Provision::Create, role, sizing).await?;
        // Shared streams are checked for each role; each difference is reported once.
        let new: Vec<_> = found.drifts.into_iter().filter(|drift| !drifts.contains(drift)).collect();
        drifts.extend(new);
    }
    let of_gateway = [streams::audit(replicas), streams::events(replicas), streams::workflows(replicas)];
    drifts.extend(broker::provision_streams(broker, Provision::Create, of_gateway).await?);
    let of_jobs = streams::of_jobs(sizing).into_iter().chain([streams::edge_audit(replicas)]);
    drifts.extend(broker::provision_streams(broker, Provision::Create, of_jobs).await?);
    let of_gateway = [
        (streams::JOB_RUNS, streams::job_results_consumer()),
        (streams::EDGE_AUDIT, streams::edge_audit_consumer()),
        (streams::WORKFLOWS, streams::workflow_runners(streams::RUNNER_ACK_WAIT)),
    ];
    for (stream, consumer) in of_gateway {
        broker::provision_queue(broker, Provision::Create, stream, consumer).await?;
    }
    if as_json {
        let texts: Vec<_> = drifts.iter().map(ToString::to_string).collect();
        print::json(&json!({ "drifts": texts }));
    } else if drifts.is_empty() {
        print::line("all streams and consumers exist and match the expected configuration");
    } else {
        print::line("left unchanged; edit it with the nats CLI, or delete it to have it created again:");
        drifts.iter().for_each(|drift| print::line(&format!("  {drift}")));
    }
    Ok(if drifts.is_empty() { Exit::Done } else { Exit::Failed })
}
