//! Current status of streams, queues and instances.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{self, PullConsumer},
    context::GetStreamErrorKind,
    stream,
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

/// The queue of workflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorkflowQueue {
    /// Not taken yet.
    pub waiting: u64,
    /// Taken by a runner, and not settled.
    pub in_flight: usize,
    pub redelivered: usize,
    /// Pull requests that wait for workflows: none if no runner is there, or all are busy.
    pub pulls_waiting: usize,
}

/// Reads the queue of workflows; `None` if there is none, or if these credentials may not read it.
pub async fn workflows(broker: &Broker) -> Option<WorkflowQueue> {
    let (name, queue) = (streams::WORKFLOW_RUNNERS, streams::WORKFLOWS);
    let found: Result<PullConsumer, _> = broker.jetstream.get_consumer_from_stream(name, queue).await;
    let found = found.ok()?;
    let info = found.cached_info();
    Some(WorkflowQueue {
        waiting: info.num_pending,
        in_flight: info.num_ack_pending,
        redelivered: info.num_redelivered,
        pulls_waiting: info.num_waiting,
    })
}

/// The queues of jobs, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobQueues {
    /// Not taken by a node yet.
    pub waiting: u64,
    /// Taken by a node, and not settled.
    pub in_flight: usize,
    pub redelivered: usize,
}

/// Reads the queues of jobs; `None` if there are none, or if these credentials may not read them.
pub async fn jobs(broker: &Broker) -> Option<JobQueues> {
    let stream = broker.jetstream.get_stream(streams::JOBS).await.ok()?;
    // Each class of jobs and each node has a subject, and a consumer once a node was there.
    let mut subjects = stream.info_with_subjects(">").await.ok()?;
    let mut found = JobQueues::default();
    while let Some(Ok((subject, messages))) = subjects.next().await {
        let info = match subject.parse::<Subject>() {
            Ok(queue) => job_consumer(broker, &queue).await,
            Err(_) => None,
        };
        let in_flight = info.as_ref().map_or(0, |info| info.num_ack_pending);
        found.waiting += u64::try_from(messages.saturating_sub(in_flight)).unwrap_or(u64::MAX);
        found.in_flight += in_flight;
        found.redelivered += info.map_or(0, |info| info.num_redelivered);
    }
    Some(found)
}

async fn job_consumer(broker: &Broker, queue: &Subject) -> Option<consumer::Info> {
    let name = streams::node_consumer_name(queue);
    let found: Result<PullConsumer, _> = broker.jetstream.get_consumer_from_stream(name, streams::JOBS).await;
    found.ok().map(|consumer| consumer.cached_info().clone())
}

/// Reads the streams of jobs and workflows; those that do not exist, or that these credentials may not read,
/// are left out.
pub async fn streams_of_work(broker: &Broker) -> Vec<StreamStatus> {
    let mut found = Vec::new();
    for name in [streams::JOBS, streams::JOB_RUNS, streams::JOB_LOGS, streams::WORKFLOWS] {
        if let Ok(stream) = broker.jetstream.get_stream(name).await {
            found.push(describe(name, stream.cached_info()));
        }
    }
    found
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
        found.push(describe(name, stream.cached_info()));
    }
    Ok(found)
}

fn describe(name: &'static str, info: &stream::Info) -> StreamStatus {
    StreamStatus {
        name,
        messages: info.state.messages,
        bytes: info.state.bytes,
        replicas: info.config.num_replicas,
    }
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
