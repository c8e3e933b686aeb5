use std::time::Duration;

use async_nats::jetstream::{consumer::PullConsumer, context::GetStreamErrorKind};
use broker::Broker;
use futures_util::StreamExt;
use serde::Serialize;
use subjects::{InstanceStatus, Kind, Subject, streams};

use crate::{
    answer::word,
    error::{Error, Exit},
    print,
};

/// Instances answer at once or not at all.
const QUIET_AFTER: Duration = Duration::from_millis(300);

#[derive(Debug, Serialize)]
struct Status {
    server: String,
    streams: Vec<StreamStatus>,
    queues: Vec<QueueStatus>,
    instances: Vec<InstanceStatus>,
}

#[derive(Debug, Serialize)]
struct StreamStatus {
    name: &'static str,
    messages: u64,
    bytes: u64,
    replicas: usize,
}

#[derive(Debug, Serialize)]
struct QueueStatus {
    kind: Kind,
    /// Not delivered yet.
    waiting: u64,
    in_flight: usize,
    redelivered: usize,
    /// Pull requests that wait for work: about one for each instance with a free slot.
    pulls_waiting: usize,
}

pub(crate) async fn run(broker: &Broker, json: bool) -> Result<Exit, Error> {
    let status = Status {
        server: broker.client.server_info().version,
        streams: streams(broker).await?,
        queues: queues(broker).await?,
        instances: instances(broker).await?,
    };
    if json {
        print::json(&status);
    } else {
        show(status);
    }
    Ok(Exit::Done)
}

async fn streams(broker: &Broker) -> Result<Vec<StreamStatus>, Error> {
    let mut found = Vec::new();
    for name in [streams::HANDOFFS, streams::RUNS, streams::DEAD, streams::ADVISORIES] {
        let stream = match broker.jetstream.get_stream(name).await {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(_) => return Err(Error::NoStreams),
                _ => return Err(Error::nats(error)),
            },
        };
        let info = stream.cached_info();
        found.push(StreamStatus {
            name,
            messages: info.state.messages,
            bytes: info.state.bytes,
            replicas: info.config.num_replicas,
        });
    }
    Ok(found)
}

/// Queues of both roles; those of a role that never ran are not there yet.
async fn queues(broker: &Broker) -> Result<Vec<QueueStatus>, Error> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        let looked: Result<PullConsumer, _> =
            broker.jetstream.get_consumer_from_stream(streams::consumer_name(kind), streams::HANDOFFS).await;
        let Ok(consumer) = looked else { continue };
        let info = consumer.cached_info();
        found.push(QueueStatus {
            kind,
            waiting: info.num_pending,
            in_flight: info.num_ack_pending,
            redelivered: info.num_redelivered,
            pulls_waiting: info.num_waiting,
        });
    }
    Ok(found)
}

async fn instances(broker: &Broker) -> Result<Vec<InstanceStatus>, Error> {
    #[derive(serde::Deserialize)]
    struct Pong {
        metadata: std::collections::HashMap<String, String>,
    }
    let inbox = broker.client.new_inbox();
    let mut pongs = broker.client.subscribe(inbox.clone()).await?;
    broker.client.publish_with_reply("$SRV.PING.cynode-pma", inbox, "".into()).await?;
    let mut found = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(QUIET_AFTER, pongs.next()).await {
        let Ok(pong) = serde_json::from_slice::<Pong>(&message.payload) else { continue };
        let Some(Ok(instance)) = pong.metadata.get("instance").map(|name| name.parse()) else { continue };
        let asked = broker.client.request(Subject::Instance(instance).to_string(), "".into()).await;
        // One that left between the two questions is not an instance any more.
        let Ok(reply) = asked else { continue };
        found.push(serde_json::from_slice(&reply.payload).map_err(Error::nats)?);
    }
    found.sort_by(|a: &InstanceStatus, b| (a.role, &a.instance).cmp(&(b.role, &b.instance)));
    Ok(found)
}

fn show(status: Status) {
    print::line(&format!("nats-server {}\n", status.server));
    let rows = status.streams.into_iter().map(|stream| {
        vec![
            stream.name.to_owned(),
            stream.messages.to_string(),
            bytes(stream.bytes),
            stream.replicas.to_string(),
        ]
    });
    print::table(&["STREAM", "MESSAGES", "SIZE", "REPLICAS"], rows.collect());
    print::line("");
    let rows = status.queues.into_iter().map(|queue| {
        vec![
            queue.kind.to_string(),
            queue.waiting.to_string(),
            queue.in_flight.to_string(),
            queue.redelivered.to_string(),
            queue.pulls_waiting.to_string(),
        ]
    });
    print::table(&["QUEUE", "WAITING", "IN FLIGHT", "REDELIVERED", "PULLS OPEN"], rows.collect());
    print::line("");
    if status.instances.is_empty() {
        print::line("no instance is running");
        return;
    }
    let rows = status.instances.into_iter().map(|it| {
        let running: Vec<String> = it
            .in_flight
            .iter()
            .map(|(kind, work)| format!("{kind} {}/{}", work.running, work.slots))
            .collect();
        vec![
            it.instance.to_string(),
            it.role.to_string(),
            it.version,
            word(&it.state),
            running.join(", "),
            it.model_route,
            it.started_at.to_string(),
        ]
    });
    print::table(&["INSTANCE", "ROLE", "VERSION", "STATE", "RUNNING", "MODEL", "SINCE"], rows.collect());
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
