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

/// Makes what is missing for both roles and for the gateway's audit. What is there is left as it is.
pub(crate) async fn run(broker: &Broker, command: &cli::Provision, as_json: bool) -> Result<Exit, Error> {
    let replicas = usize::from(command.replicas);
    let sizing = Sizing { replicas, ack_wait: command.ack_wait, dedupe_window: command.dedupe_window };
    let mut drifts: Vec<Drift> = Vec::new();
    for role in Role::ALL {
        let found = broker::provision(broker, Provision::Create, role, sizing).await?;
        // Streams are looked at for each role; each difference is told once.
        let new: Vec<_> = found.drifts.into_iter().filter(|drift| !drifts.contains(drift)).collect();
        drifts.extend(new);
    }
    broker.jetstream.get_or_create_stream(streams::audit(replicas)).await.map_err(Error::nats)?;
    if as_json {
        let told: Vec<_> = drifts.iter().map(ToString::to_string).collect();
        print::json(&json!({ "drifts": told }));
    } else if drifts.is_empty() {
        print::line("all streams and consumers exist and match the expected configuration");
    } else {
        print::line("left unchanged; edit it with the nats CLI, or delete it to have it created again:");
        drifts.iter().for_each(|drift| print::line(&format!("  {drift}")));
    }
    Ok(if drifts.is_empty() { Exit::Done } else { Exit::Failed })
}
