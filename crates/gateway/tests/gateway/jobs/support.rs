//! A gateway with NATS, and a node that a test plays.

use std::time::Duration;

use async_nats::jetstream::{self, message::StreamMessage};
use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subjects::{
    JobId, NodeId, Pattern, Subject,
    job::{
        Claimed, End, Engine, Entry, Job, JobResult, JobUsage, LogChunk, LogExtent, Record, StoredFile,
        VERSION,
    },
    node::{EngineStatus, NodeOrders, NodeState, NodeStatus},
    streams,
};
use testkit::{GatewayProcess, Nats, eventually, eventually_within};

use crate::administration::support::manager;

/// The gateway looks once a minute.
const LOOKS: Duration = Duration::from_secs(100);

pub(crate) struct World {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    pub(crate) manager: mcp::Client,
    pub(crate) task: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::with_variables(settings, &[]).await
    }

    pub(crate) async fn with_variables(settings: &[(&str, &str)], variables: &[(String, String)]) -> Self {
        let nats = Nats::start();
        let url = nats.url();
        let settings: Vec<(&str, &str)> =
            [("nats.url", &*url)].into_iter().chain(settings.iter().copied()).collect();
        let gateway = GatewayProcess::start_with_variables(&settings, variables).await;
        let manager = manager(&gateway).await;
        let created = json!({ "title": "build", "user_id": "ada" });
        let reply = gateway.call(&manager, "db.task.create", created).await.expect("a task");
        let task = reply.structured.expect("a task")["task_id"].as_str().expect("an id").to_owned();
        Self { nats, gateway, manager, task }
    }

    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> Value {
        ok(&self.gateway, &self.manager, tool, arguments).await
    }

    /// Creates a job and returns its id.
    pub(crate) async fn run(&self, more: Value) -> JobId {
        let mut arguments = json!({ "task_id": self.task, "command": ["make", "report"] });
        for (name, value) in more.as_object().expect("an object") {
            arguments[name] = value.clone();
        }
        id_of(&self.ok("sandbox.run", arguments).await)
    }

    pub(crate) async fn get(&self, job: JobId) -> Value {
        self.ok("sandbox.job.get", json!({ "job_id": job })).await
    }

    /// Waits longer than the pause between two looks of the gateway for what the streams have lost.
    pub(crate) async fn until(&self, job: JobId, status: &str) -> Value {
        eventually_within(LOOKS, &format!("the job is {status}"), async || {
            let found = self.get(job).await;
            (found["status"] == status).then_some(found)
        })
        .await
    }

    pub(crate) async fn node(&self, id: &str) -> TestNode {
        TestNode::new(id, &self.nats, &self.gateway).await
    }
}

pub(crate) async fn ok(gateway: &GatewayProcess, agent: &mcp::Client, tool: &str, arguments: Value) -> Value {
    let shown = arguments.to_string();
    match gateway.call(agent, tool, arguments).await {
        Ok(reply) if !reply.is_error => reply.structured.expect("a result"),
        Ok(reply) => panic!("{tool} {shown:.300}: {}", reply.text),
        Err(error) => panic!("{tool} {shown:.300}: {error}"),
    }
}

pub(crate) fn id_of(job: &Value) -> JobId {
    job["job_id"].as_str().expect("an id").parse().expect("an id")
}

pub(crate) fn digest(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}

/// A node that a test plays: it writes what a node would write.
pub(crate) struct TestNode {
    pub(crate) id: NodeId,
    pub(crate) client: async_nats::Client,
    pub(crate) jetstream: jetstream::Context,
    agent: mcp::Client,
}

impl TestNode {
    pub(crate) async fn new(id: &str, nats: &Nats, gateway: &GatewayProcess) -> Self {
        let client = nats.client().await;
        let agent = gateway.agent(&gateway.node_token(id).await);
        Self { id: id.parse().expect("an id"), jetstream: jetstream::new(client.clone()), client, agent }
    }

    /// The message of a job in a queue.
    pub(crate) async fn queued(&self, queue: &str) -> Job {
        let message = self.newest(streams::JOBS, queue).await;
        Job::decode(&message.payload).expect("a job")
    }

    /// The last message on a subject, as soon as there is one.
    pub(crate) async fn newest(&self, stream: &str, subject: &str) -> StreamMessage {
        eventually(&format!("a message on {subject}"), async || {
            broker::last_on(&self.jetstream, stream, &subject).await.ok().flatten()
        })
        .await
    }

    async fn publish(&self, subject: Subject, body: Vec<u8>, job: JobId, after: u64) -> Result<u64, String> {
        let expect = broker::Expect { over: Pattern::JobRun(job), sequence: after };
        let headers = async_nats::HeaderMap::new();
        let stored = broker::publish(&self.client, &subject, headers, body.into(), Some(&expect)).await;
        stored.map(|stored| stored.sequence).map_err(|error| error.to_string())
    }

    /// Writes an entry after the message with a sequence. Returns its own.
    pub(crate) async fn record(&self, job: JobId, record: Record, after: u64) -> Result<u64, String> {
        let subject = Subject::JobJournal(job, self.id.clone());
        self.publish(subject, Entry::new(record).encode(), job, after).await
    }

    pub(crate) async fn claim(&self, job: JobId, attempt: u32, after: u64) -> Result<u64, String> {
        let claimed = Claimed {
            attempt,
            node: self.id.clone(),
            instance: "i-1".parse().expect("a name"),
            engine: Engine::Bwrap,
            queued: 1,
            delivery: 1,
        };
        self.record(job, Record::Claimed(claimed), after).await
    }

    pub(crate) fn result(&self, job: JobId, end: End) -> JobResult {
        JobResult {
            v: VERSION,
            job_id: job,
            node: Some(self.id.clone()),
            engine: Some(Engine::Bwrap),
            attempt: 1,
            end,
            started_at: Some(subjects::Timestamp::now()),
            ended_at: subjects::Timestamp::now(),
            usage: JobUsage { wall_ms: 12, cpu_ms: 3, memory_peak_bytes: 1 << 20 },
            log: LogExtent::default(),
            files: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) async fn end(&self, result: &JobResult, after: u64) -> Result<u64, String> {
        let subject = Subject::JobResult(result.job_id, self.id.clone());
        self.publish(subject, result.encode(), result.job_id, after).await
    }

    /// Stores a chunk of a log.
    pub(crate) async fn log(&self, job: JobId, number: u64, text: &[u8]) {
        let chunk = LogChunk { attempt: 1, number, bytes: text.to_vec().into() };
        let (headers, subject) = (chunk.headers(job, &self.id), Subject::JobLog(job, self.id.clone()));
        broker::publish(&self.client, &subject, headers, chunk.bytes, None).await.expect("stored");
    }

    /// Stores a chunk of a log once more, as when its confirmation was lost for longer than the stream looks
    /// for copies.
    pub(crate) async fn log_again(&self, job: JobId, number: u64, text: &[u8]) {
        let chunk = LogChunk { attempt: 1, number, bytes: text.to_vec().into() };
        let (mut headers, subject) = (chunk.headers(job, &self.id), Subject::JobLog(job, self.id.clone()));
        headers.insert(subjects::headers::MSG_ID, JobId::now().to_string());
        let stored = broker::publish(&self.client, &subject, headers, chunk.bytes, None).await;
        assert!(!stored.expect("stored").duplicate, "the stream has it twice");
    }

    /// Stores a file under the lease of the job, as one piece.
    pub(crate) async fn store(
        &self,
        gateway: &GatewayProcess,
        lease: &str,
        path: &str,
        content: &[u8],
    ) -> StoredFile {
        let piece = json!({
            "attempt": 1, "path": path, "size": content.len(), "sha256": digest(content),
            "content": BASE64.encode(content),
        });
        let reply = gateway.call_under(&self.agent, Some(lease), "sandbox.job.store", piece).await;
        let stored = reply.expect("stored").structured.expect("a result");
        assert_eq!(stored["is_complete"], true, "{stored}");
        StoredFile { path: path.to_owned(), size: content.len() as u64, sha256: digest(content) }
    }

    /// Calls a tool with the token of the node.
    pub(crate) async fn call(
        &self,
        gateway: &GatewayProcess,
        lease: Option<&str>,
        tool: &str,
        arguments: Value,
    ) -> Result<mcp::Reply, mcp::Error> {
        gateway.call_under(&self.agent, lease, tool, arguments).await
    }

    /// As `call`, with an idempotency key, and it has to be done. Returns the result.
    pub(crate) async fn call_with_key(&self, lease: &str, key: &str, name: &str, arguments: Value) -> Value {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let idempotency_key = Some(key);
        let call = mcp::Call { name, arguments, idempotency_key, traceparent: None, lease: Some(lease) };
        let reply = self.agent.call(call).await.expect("a reply");
        assert!(!reply.is_error, "{name}: {}", reply.text);
        reply.structured.expect("a result")
    }

    /// Binds the lease of a job to the node. Returns the bound lease.
    pub(crate) async fn bind(&self, gateway: &GatewayProcess, lease: &str) -> String {
        let holder = nkeys::KeyPair::new_user().public_key();
        let wanted = json!({ "node": self.id, "holder": holder });
        let bound = self.call(gateway, Some(lease), "lease.bind", wanted).await.expect("a reply");
        assert!(!bound.is_error, "{}", bound.text);
        bound.structured.expect("a lease")["lease"].as_str().expect("a text").to_owned()
    }

    pub(crate) fn status(&self, instance: &str) -> NodeStatus {
        NodeStatus {
            node: self.id.clone(),
            instance: instance.parse().expect("a name"),
            version: "0.1.0".to_owned(),
            pool: "default".parse().expect("a pool"),
            labels: Default::default(),
            state: NodeState::Ready,
            reasons: Vec::new(),
            engines: vec![EngineStatus {
                engine: Engine::Bwrap,
                offered: true,
                notes: Vec::new(),
                attempts: Vec::new(),
            }],
            images: Vec::new(),
            slots: 2,
            running: Vec::new(),
            started_at: subjects::Timestamp::now(),
        }
    }

    /// Reports the node and returns its orders, as soon as a gateway answers.
    pub(crate) async fn report(&self, status: &NodeStatus) -> NodeOrders {
        let subject = Subject::NodePresence(self.id.clone()).to_string();
        let body = subjects::encode_json(status);
        eventually("a gateway answers the node", async || {
            let asked = self.client.request(subject.clone(), body.clone().into());
            let reply = tokio::time::timeout(Duration::from_secs(2), asked).await.ok()?.ok()?;
            serde_json::from_slice(&reply.payload).ok()
        })
        .await
    }
}
