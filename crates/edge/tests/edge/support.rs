//! A gateway with NATS, an MCP server of the node, and agents that call over a unix socket.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use edge::{Edge, EdgeLimits, EdgeSettings, JobEndpoint, UpstreamSettings};
use leased::HeldLease;
use nkeys::KeyPair;
use serde_json::{Value, json};
use subjects::{NodeId, streams::Layout};
use tempfile::TempDir;
use testkit::{Answer, Gateway, GatewayProcess, Nats, Process, Tool, cynodectl, eventually, run};

pub(crate) const NODE: &str = "node-1";

/// A gateway with NATS, and an MCP server of the node.
pub(crate) struct World {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    pub(crate) server: Gateway,
    pub(crate) folder: TempDir,
    pub(crate) key: KeyPair,
    pub(crate) token: String,
    pub(crate) token_id: String,
    /// How long calls of the node's server may take.
    pub(crate) timeout_seconds: u64,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    /// Starts with these tools beside `echo`.
    pub(crate) async fn start_with(tools: Vec<Tool>) -> Self {
        Self::start_at(tools, &[]).await
    }

    /// Starts with further settings of the gateway.
    pub(crate) async fn start_at(mut tools: Vec<Tool>, more: &[(&str, &str)]) -> Self {
        let nats = Nats::start();
        let url = nats.url();
        let settings =
            [("nats.url", url.as_str()), ("audit.node_grace", "1s"), ("audit.seal_every", "200ms")];
        let settings = [&settings, more].concat();
        let gateway = GatewayProcess::start_with(&settings).await;
        let new = json!({ "label": "node", "agent": "node", "node": NODE });
        let (token_id, token) = gateway.issue(new).await;
        let echo = Tool::new("echo", "Repeats.", json!({ "type": "object" }), |arguments| {
            Answer::structured(json!({ "said": arguments.get("text") }))
        });
        tools.push(echo);
        let server = Gateway::start(tools).await;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), &token).unwrap();
        let (key, timeout_seconds) = (KeyPair::new_user(), 60);
        Self { nats, gateway, server, folder, key, token, token_id, timeout_seconds }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues the lease of a job.
    pub(crate) async fn job_lease(&self, tools: Option<&[&str]>) -> Arc<HeldLease> {
        let mut new = json!({ "agent": "sandbox", "user_id": "ada", "task_id": "t-1", "job_id": "j-1" });
        if let Some(tools) = tools {
            new["tools"] = json!(tools);
        }
        let (_, text) = self.gateway.lease(new).await;
        Arc::new(HeldLease::read(&text).unwrap())
    }

    pub(crate) fn upstreams(&self) -> Vec<UpstreamSettings> {
        let timeout_seconds = self.timeout_seconds;
        let server =
            json!({ "namespace": "local", "url": self.server.url(), "timeout_seconds": timeout_seconds });
        vec![serde_json::from_value(server).unwrap()]
    }

    pub(crate) fn client(&self) -> mcp::Client {
        self.gateway.agent(&self.token)
    }

    pub(crate) fn open(&self, folder: &str, key: &KeyPair, node: &str, limits: EdgeLimits) -> Arc<Edge> {
        self.open_with(self.client(), folder, key, node, limits)
    }

    /// Opens an edge that calls the gateway with another token.
    pub(crate) fn open_with(
        &self,
        gateway: mcp::Client,
        folder: &str,
        key: &KeyPair,
        node: &str,
        limits: EdgeLimits,
    ) -> Arc<Edge> {
        Edge::open(EdgeSettings {
            folder: self.path(folder),
            node: node.parse::<NodeId>().unwrap(),
            key: key.clone(),
            gateway,
            trusted_keys: Vec::new(),
            upstreams: self.upstreams(),
            limits,
        })
        .unwrap()
    }

    /// Writes the settings of an edge that is a process of its own, with the lease of a new job.
    pub(crate) async fn write_host_settings(&self) {
        let held = self.job_lease(None).await;
        fs::write(self.path("lease"), &*held.text()).unwrap();
        let settings = json!({
            "folder": self.path("edge"), "node": NODE, "seed": self.key.seed().unwrap(),
            "gateway_url": self.gateway.url(), "token_file": self.path("token"), "nats_url": self.nats.url(),
            "lease_file": self.path("lease"), "socket": self.path("s"), "upstreams": self.upstreams(),
            "lifetime_seconds": 600,
        });
        fs::write(self.path("host.json"), settings.to_string()).unwrap();
    }

    /// Starts the process with these settings.
    pub(crate) fn start_host(&self) -> Process {
        let program = Path::new(env!("CARGO_BIN_EXE_edge-host"));
        let settings = self.path("host.json").display().to_string();
        Process::start(program, &[settings], &[], &self.path("host.log"))
    }

    /// Waits until the process serves its job.
    pub(crate) async fn wait_for_host(&self) {
        let socket = self.path("s");
        eventually("the edge serves", async || tokio::net::UnixStream::connect(&socket).await.ok()).await;
    }

    pub(crate) async fn broker(&self) -> broker::Broker {
        Box::pin(broker::connect(&broker::Options {
            url: self.nats.url(),
            name: "test".to_owned(),
            auth: broker::Auth::None,
            tls: broker::Tls::default(),
            inbox_prefix: None,
            layout: Layout::default(),
        }))
        .await
        .unwrap()
    }

    /// Ships all that is in the folder of an edge.
    pub(crate) async fn ship(&self, edge: &Edge) {
        let broker = self.broker().await;
        eventually("the audit is shipped", async || edge.ship_once(&broker).await.then_some(())).await;
    }

    /// Returns what the gateway says of the audit of nodes.
    pub(crate) async fn node_audit(&self) -> Value {
        self.gateway.must("GET", "/api/v1/audit/nodes", None).await
    }

    /// Waits until the gateway has taken over the last line of a lease.
    pub(crate) async fn wait_until_closed(&self, lease: &str) -> Value {
        eventually("the last line of the lease is taken over", async || {
            let audit = self.node_audit().await;
            let leases = audit["leases"].as_array()?;
            leases.iter().find(|it| it["lease_id"] == lease && !it["closed_at"].is_null()).cloned()
        })
        .await
    }

    /// Waits for an alarm of a kind, and returns it.
    pub(crate) async fn wait_for_alarm(&self, kind: &str) -> Value {
        eventually(&format!("an alarm of kind {kind}"), async || {
            let audit = self.node_audit().await;
            audit["alarms"].as_array()?.iter().find(|alarm| alarm["kind"] == kind).cloned()
        })
        .await
    }

    /// Runs `cynodectl audit verify` and returns whether all is well, and what it printed.
    pub(crate) fn verify(&self) -> (bool, String) {
        let token = self.gateway.admin_token_file().display().to_string();
        let (admin, nats) = (self.gateway.admin_url(), self.nats.url());
        let arguments = [
            "audit",
            "verify",
            "--nats",
            "--gateway",
            &admin,
            "--admin-token-file",
            &token,
            "--server",
            &nats,
        ];
        let finished = run(&cynodectl(), self.folder.path(), &arguments, &[]);
        (finished.code == 0, format!("{}{}", finished.stdout, finished.stderr))
    }

    /// Returns the lines of all rows that nodes decided on, by lease, in the order of the audit.
    pub(crate) async fn rows_of_node(&self) -> Vec<Value> {
        let response = self.gateway.http().get(format!("{}/api/v1/audit/export", self.gateway.admin_url()));
        let response = response.bearer_auth(self.gateway.admin_token()).send().await.unwrap();
        let text = response.text().await.unwrap();
        let rows = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["node"].is_string()).collect()
    }
}

/// An agent that calls over a unix socket.
pub(crate) struct Agent(reqwest::Client);

impl Agent {
    pub(crate) fn new(socket: &Path) -> Self {
        let client = reqwest::Client::builder().no_proxy().unix_socket(socket);
        Self(client.timeout(Duration::from_secs(30)).build().unwrap())
    }

    /// Makes one request in the older era. `None` if the connection broke.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Option<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = self
            .0
            .post("http://edge/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        let text = request.send().await.ok()?.text().await.ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Option<Value> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls with an idempotency key.
    pub(crate) async fn call_with_key(&self, tool: &str, arguments: Value, key: &str) -> Option<Value> {
        let meta = json!({ "dev.cynode/idempotency-key": key });
        self.request("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta })).await
    }
}

/// Calls over the endpoint's socket.
pub(crate) async fn call(endpoint: &JobEndpoint, tool: &str, arguments: Value) -> Value {
    Agent::new(endpoint.socket()).call(tool, arguments).await.expect("an answer")
}
