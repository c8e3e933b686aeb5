//! A cluster of three nats-servers.

use std::time::Duration;

use async_nats::jetstream::{self, stream};

use crate::{Nats, eventually_within, free_port};

const FORM_TIMEOUT: Duration = Duration::from_secs(60);
const NODES: usize = 3;

/// A cluster of three nats-servers. Killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Nats>,
}

impl Cluster {
    /// Starts the cluster and waits until it can create streams with three replicas.
    pub async fn start() -> Self {
        let ports: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let routes: Vec<String> = ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let routes = routes.join(", ");
        let node = |(number, port)| {
            Nats::start_with(&format!(
                "server_name: {}\ncluster {{ name: test, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}",
                name(number),
            ))
        };
        let cluster = Self { nodes: ports.iter().enumerate().map(node).collect() };
        let jetstream = jetstream::new(cluster.nodes[0].client().await);
        eventually_within(FORM_TIMEOUT, "the cluster to form", async || {
            let config = stream::Config {
                name: "PROBE".to_owned(),
                subjects: vec!["probe".to_owned()],
                num_replicas: NODES,
                ..Default::default()
            };
            jetstream.create_stream(config).await.ok()?;
            jetstream.delete_stream("PROBE").await.ok()
        })
        .await;
        cluster
    }

    /// Returns the URLs of all nodes, separated by commas.
    pub fn url(&self) -> String {
        self.nodes.iter().map(Nats::url).collect::<Vec<_>>().join(",")
    }

    /// Returns the number of the node that leads a stream. Waits until there is one.
    pub async fn leader_of(&self, jetstream: &jetstream::Context, stream: &str) -> usize {
        eventually_within(FORM_TIMEOUT, &format!("{stream} to have a leader"), async || {
            let stream = jetstream.get_stream(stream).await.ok()?;
            let leader = stream.cached_info().cluster.as_ref()?.leader.clone()?;
            (0..NODES).find(|number| name(*number) == leader)
        })
        .await
    }
}

fn name(number: usize) -> String {
    format!("node-{number}")
}
