//! `cynodectl status`.

use std::time::Duration;

use api::Node;
use broker::Broker;
use operate::{
    label,
    status::{JobQueues, Status, WorkflowQueue},
};
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    cli::GatewayLink,
    error::{Error, Exit},
    gateway::{ApiRequest, Gateway},
    print,
};

/// A gateway that takes longer is treated as one that is away.
const NODES_TIMEOUT: Duration = Duration::from_secs(3);

/// What NATS and the gateway know.
#[derive(Serialize)]
struct Known {
    #[serde(flatten)]
    status: Status,
    /// Absent if it does not exist.
    workflows: Option<WorkflowQueue>,
    /// Absent if there are none.
    jobs: Option<JobQueues>,
    /// Absent if the gateway is away, or without a token for it.
    nodes: Option<Vec<Node>>,
}

/// Shows streams, queues and instances, and the nodes if the gateway tells.
pub(crate) async fn run(broker: &Broker, gateway: &GatewayLink, json: bool) -> Result<Exit, Error> {
    let mut status = operate::status::read(broker).await?;
    status.streams.extend(operate::status::streams_of_work(broker).await);
    let (workflows, jobs) = (operate::status::workflows(broker).await, operate::status::jobs(broker).await);
    let nodes = nodes(gateway).await;
    if json {
        print::json(&Known { status, workflows, jobs, nodes });
    } else {
        show(status, workflows, jobs);
        print::line("");
        show_nodes(nodes, &gateway.gateway);
    }
    Ok(Exit::Done)
}

async fn nodes(link: &GatewayLink) -> Option<Vec<Node>> {
    let gateway = Gateway::open(link).ok()?;
    timeout(NODES_TIMEOUT, gateway.ask(ApiRequest::get(&["nodes"]))).await.ok()?.ok()
}

fn show_nodes(nodes: Option<Vec<Node>>, gateway: &str) {
    let Some(nodes) = nodes else {
        print::line(&format!(
            "no node list: the gateway at {} is unreachable, or no admin token was given",
            broker::redact_url(gateway)
        ));
        return;
    };
    if nodes.is_empty() {
        print::line("no node is known; docs/nodes.md says how to start one");
        return;
    }
    let rows = nodes.into_iter().map(|node| {
        let engines =
            node.engines.iter().filter(|engine| engine.offered).map(|engine| engine.engine.as_str());
        let mut state = node.state.as_str().to_owned();
        if node.cordoned && state != "cordoned" {
            state.push_str(", cordoned");
        }
        let cells = [
            node.node_id,
            node.pool,
            state,
            engines.collect::<Vec<_>>().join(", "),
            format!("{}/{}", node.busy, node.slots),
            node.waiting.to_string(),
            node.seen_at,
        ];
        cells.map(|cell| print::sanitize(&cell)).into()
    });
    print::table(&["NODE", "POOL", "STATE", "ENGINES", "RUNNING", "WAITING", "SEEN"], rows.collect());
}

fn show(status: Status, workflows: Option<WorkflowQueue>, jobs: Option<JobQueues>) {
    print::line(&format!("nats-server {}\n", status.server));
    let rows = status.streams.into_iter().map(|stream| {
        vec![
            stream.name.to_owned(),
            stream.messages.to_string(),
            operate::format_size(stream.bytes),
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
    let rows = rows.chain(workflows.map(|queue| {
        vec![
            "workflow".to_owned(),
            queue.waiting.to_string(),
            queue.in_flight.to_string(),
            queue.redelivered.to_string(),
            queue.pulls_waiting.to_string(),
        ]
    }));
    // Each class of jobs and each node has a queue of its own: `nodes` below says who takes jobs.
    let rows = rows.chain(jobs.map(|queues| {
        vec![
            "job".to_owned(),
            queues.waiting.to_string(),
            queues.in_flight.to_string(),
            queues.redelivered.to_string(),
            "-".to_owned(),
        ]
    }));
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
            label(&it.state),
            running.join(", "),
            it.model_route,
            it.started_at.to_string(),
        ]
    });
    print::table(&["INSTANCE", "ROLE", "VERSION", "STATE", "RUNNING", "MODEL", "SINCE"], rows.collect());
}
