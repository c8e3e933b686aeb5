//! Current status of streams, queues and instances.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{self, PullConsumer},
    context::GetStreamErrorKind,
};
use broker::Broker;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;
use subjects::{InstanceStatus, Kind, Subject, streams};
use tokio::time::timeout;

use crate::Error;

/// The ping is over when no further instance answers within this time.
const PING_TIMEOUT: Duration = Duration::from_millis(300);
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Status {
    /// The version of the NATS server.
    pub server: String,
    pub streams: Vec<StreamStatus>,
    pub queues: Vec<QueueStatus>,
    pub instances: Vec<InstanceStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamStatus {
    pub name: &'static str,
    pub messages: u64,
    pub bytes: u64,
    pub replicas: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueueStatus {
    pub kind: Kind,
    /// Not delivered yet.
    pub waiting: u64,
    pub in_flight: usize,
    pub redelivered: usize,
    /// Pull requests that wait for work: about one for each instance with a free slot.
    pub pulls_waiting: usize,
}

/// Reads the status. Fails if the streams are missing or use another layout.
pub async fn read(broker: &Broker) -> Result<Status, Error> {
    // With the wrong layout the queues would look empty.
    broker::check_layout(broker).await?;
    Ok(Status {
        server: broker.client.server_info().version,
        streams: streams(broker).await?,
        queues: queues(broker).await?,
        instances: instances(broker).await?,
    })
}

async fn streams(broker: &Broker) -> Result<Vec<StreamStatus>, Error> {
    let mut found = Vec::new();
    for name in broker.layout.names() {
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

/// Returns the queues of both roles; a role that never ran has none yet.
async fn queues(broker: &Broker) -> Result<Vec<QueueStatus>, Error> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        let Some(info) = consumer(broker, kind).await else { continue };
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

/// Returns the state of a kind's consumer; `None` if it cannot be read.
pub(crate) async fn consumer(broker: &Broker, kind: Kind) -> Option<consumer::Info> {
    let (name, queue) = (streams::consumer_name(kind), broker.layout.handoffs(kind.role()));
    let found: Result<PullConsumer, _> = broker.jetstream.get_consumer_from_stream(name, queue).await;
    found.ok().map(|consumer| consumer.cached_info().clone())
}

/// Pings all instances, then requests the status of each.
async fn instances(broker: &Broker) -> Result<Vec<InstanceStatus>, Error> {
    #[derive(serde::Deserialize)]
    struct Pong {
        metadata: std::collections::HashMap<String, String>,
    }
    let inbox = broker.client.new_inbox();
    let mut pongs = broker.client.subscribe(inbox.clone()).await?;
    broker.client.publish_with_reply("$SRV.PING.cynode-pma", inbox, "".into()).await?;
    let mut found = Vec::new();
    while let Ok(Some(message)) = timeout(PING_TIMEOUT, pongs.next()).await {
        let Ok(pong) = serde_json::from_slice::<Pong>(&message.payload) else { continue };
        let Some(Ok(instance)) = pong.metadata.get("instance").map(|name| name.parse()) else { continue };
        let request = broker.client.request(Subject::Instance(instance).to_string(), "".into());
        // An instance that stopped between the two requests is left out.
        let Ok(Ok(reply)) = timeout(INSTANCE_TIMEOUT, request).await else { continue };
        found.push(serde_json::from_slice(&reply.payload).map_err(Error::nats)?);
    }
    found.sort_by(|a: &InstanceStatus, b| (a.role, &a.instance).cmp(&(b.role, &b.instance)));
    Ok(found)
}
