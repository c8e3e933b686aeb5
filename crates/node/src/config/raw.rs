//! Settings as they are written: every key, its default and its meaning, and nowhere else.

use serde::{Deserialize, Serialize};
use settings::{NatsTls, Telemetry, Text, section};

section! {
    pub(crate) struct Raw {
        node: Node,
        nats: Nats,
        gateway: Gateway,
        sandbox: Sandbox,
        edge: Edge,
        admin: Admin,
        telemetry: Telemetry = Telemetry::with_defaults("text", "info,async_nats=warn"),
    }
}

section! {
    pub(crate) struct Node {
        /// Id of this node: `a-z 0-9 -`. The host name if not set.
        id: Option<Text>,
        /// Pool that this node belongs to. Nodes of a pool share its jobs.
        pool: Text = "default",
        /// Labels by which jobs choose nodes, as in `["gpu=none", "zone=a"]`.
        labels: Vec<String>,
        /// How many jobs run at the same time; `auto`: one for each core.
        slots: Text = "auto",
        /// Folder for workspaces and what the node has to remember.
        data: Text = ".cynode/node",
        /// Time that running jobs get after SIGTERM. What still runs then is handed back.
        grace: Text = "30s",
        /// Time after which the server gives a job of a silent node to another. It applies to queues that
        /// this node creates.
        ack_wait: Text = "30s",
    }
}

section! {
    pub(crate) struct Nats {
        /// NATS servers, separated by commas.
        url: Text = "nats://127.0.0.1:4222",
        /// Credentials of this node: a `.creds` file with user JWT and seed.
        creds_file: Option<Text>,
        /// Credentials of this node: a file with an nkey seed.
        nkey_file: Option<Text>,
        /// Inbox prefix for request replies.
        inbox_prefix: Text = "_INBOX",
        tls: NatsTls,
        /// `create` makes missing streams and consumers and reports drift; `verify` refuses drift by name;
        /// `none` does not look.
        provision: Text = "create",
        /// Replicas of the streams that are created.
        replicas: Text = "1",
    }
}

section! {
    pub(crate) struct Gateway {
        /// MCP endpoint of the gateway, where files of jobs are read and stored.
        url: Text = "http://127.0.0.1:8790/mcp",
        /// File with the node's token: one of agent type `node`.
        token_file: Option<Text>,
        /// Longest wait for one call.
        timeout: Text = "30s",
        /// Time a job waits for a gateway that is away before it is handed back.
        patience: Text = "2m",
    }
}

section! {
    pub(crate) struct Sandbox {
        /// Engines that this node offers, if they pass their self-test: `bwrap`, `oci`, `container`,
        /// `kubernetes`.
        engines: Vec<String> = vec!["bwrap".to_owned()],
        /// First of the user ids that jobs run under when the node runs as root. No other program may use
        /// them.
        first_uid: Text = "1700000000",
        /// How many user ids there are for jobs.
        uids: Text = "1024",
        /// Folders of the node that jobs see, read-only, with the engine `bwrap`. Those of the system's
        /// programs if not set.
        read_only: Vec<String>,
        /// Images by their digest, for engines that run one: `[{ digest = "sha256:…", rootfs = "/srv/…" }]`.
        images: Vec<Image>,
        /// Hosts that jobs may reach although they have internal addresses, if the jobs name them in the same
        /// form, as in `["db.internal:5432", "10.0.0.7"]`. Without a port, 80 and 443. Jobs reach no other
        /// internal address.
        internal_hosts: Vec<String>,
    }
}

/// An image, and the folder where it is unpacked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Image {
    pub(crate) digest: String,
    pub(crate) rootfs: Option<String>,
}

section! {
    pub(crate) struct Edge {
        /// MCP servers of this node, whose tools jobs call here:
        /// `[{ namespace = "files", command = ["mcp-files", "/srv"] }]`, or with `url` instead of `command`;
        /// see [the edge](edge.md).
        upstreams: Vec<edge::UpstreamSettings>,
        /// Loopback address at which jobs call tools with a token, for engines that cannot reach a socket of
        /// the node. None if not set.
        listen: Option<Text>,
        /// How long a job may go on calling tools of this node when the gateway cannot be reached.
        lifetime: Text = "10m",
    }
}

section! {
    pub(crate) struct Admin {
        /// Address for `/livez`, `/readyz` and `/metrics`.
        listen: Text = "127.0.0.1:8785",
    }
}
