//! A stage with NATS, a gateway and a task, and shortcuts for jobs.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{GatewayProcess, Nats, NodeBuilder, eventually_within};

/// How long a job may take from its creation to its end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    pub(crate) manager: mcp::Client,
    pub(crate) task: String,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let nats = Nats::start();
        let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
        let manager = gateway.agent(&gateway.manager().await);
        let task = json!({ "title": "Run things", "user_id": "ada" });
        let task = gateway.call(&manager, "db.task.create", task).await.unwrap().structured.unwrap();
        let task = task["task_id"].as_str().unwrap().to_owned();
        Self { nats, gateway, manager, task }
    }

    pub(crate) async fn node(&self, id: &str) -> NodeBuilder {
        NodeBuilder::new(id, &self.nats, &self.gateway).await
    }

    /// Calls a tool as the project manager, and it has to succeed.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.gateway.call(&self.manager, tool, arguments.clone()).await;
        let reply = reply.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        assert!(!reply.is_error, "{tool} {arguments}: {}", reply.text);
        reply.structured.unwrap()
    }

    /// Calls a tool that has to fail. Returns what it says.
    pub(crate) async fn refused(&self, tool: &str, arguments: Value) -> String {
        let reply = self.gateway.call(&self.manager, tool, arguments.clone()).await;
        match reply {
            Ok(reply) => {
                assert!(reply.is_error, "{tool} {arguments}: {}", reply.text);
                reply.text
            }
            Err(error) => error.to_string(),
        }
    }

    /// Creates a job that runs a script. Returns its id.
    pub(crate) async fn script(&self, script: &str, more: Value) -> String {
        self.run(json!({ "script": script }), more).await
    }

    /// Creates a job. Returns its id.
    pub(crate) async fn run(&self, what: Value, more: Value) -> String {
        let mut arguments = json!({ "task_id": self.task });
        for part in [what, more] {
            if let Value::Object(part) = part {
                arguments.as_object_mut().unwrap().extend(part);
            }
        }
        let job = self.call("sandbox.run", arguments).await;
        job["job_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.call("sandbox.job.get", json!({ "job_id": id })).await
    }

    /// Waits until a job has ended. Returns it.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        eventually_within(PATIENCE, "the job to end", || async {
            let job = self.job(id).await;
            (!job["end"].is_null()).then_some(job)
        })
        .await
    }

    /// Waits until a node runs the job. Returns which.
    pub(crate) async fn running_on(&self, id: &str) -> String {
        eventually_within(PATIENCE, "the job to run", || async {
            let job = self.job(id).await;
            (job["status"] == "running").then(|| job["node_id"].as_str().unwrap().to_owned())
        })
        .await
    }

    /// Waits until the log of a job contains a text.
    pub(crate) async fn wait_for_log(&self, id: &str, text: &str) {
        eventually_within(PATIENCE, "the log to grow", || async {
            self.log(id).await.contains(text).then_some(())
        })
        .await;
    }

    /// Returns all that a job wrote, as text.
    pub(crate) async fn log(&self, id: &str) -> String {
        let (mut text, mut after) = (String::new(), Value::Null);
        loop {
            let mut arguments = json!({ "job_id": id, "limit": 262_144 });
            if !after.is_null() {
                arguments["after"] = after;
            }
            let piece = self.call("sandbox.job.logs", arguments).await;
            text.push_str(piece["content"].as_str().unwrap());
            if piece["has_more"] != true {
                return text;
            }
            after = piece["next"].clone();
        }
    }

    /// Returns the content of an artifact of the task.
    pub(crate) async fn artifact(&self, path: &str) -> String {
        let read = self.call("artifact.get", json!({ "task_id": self.task, "path": path })).await;
        read["content"].as_str().unwrap().to_owned()
    }

    /// Waits until the message of a job is in its queue.
    pub(crate) async fn wait_until_queued(&self, id: &str) {
        eventually_within(PATIENCE, "the job to be queued", || async {
            (self.queued(id).await == 1).then_some(())
        })
        .await;
    }

    /// Returns how many messages of a job are in the queues, taken or not.
    pub(crate) async fn queued(&self, id: &str) -> usize {
        let jetstream = async_nats::jetstream::new(self.nats.client().await);
        let stream = jetstream.get_stream(subjects::streams::JOBS).await.unwrap();
        let state = &stream.cached_info().state;
        let mut found = 0;
        for sequence in state.first_sequence..=state.last_sequence {
            if let Ok(message) = stream.get_raw_message(sequence).await {
                found += usize::from(message.payload.windows(id.len()).any(|part| part == id.as_bytes()));
            }
        }
        found
    }

    /// Returns how many results of a job the stream holds.
    pub(crate) async fn results(&self, id: &str) -> usize {
        let client = self.nats.client().await;
        let jetstream = async_nats::jetstream::new(client);
        let mut stream = jetstream.get_stream(subjects::streams::JOB_RUNS).await.unwrap();
        let subject = format!("job.{id}.*.result");
        let info = stream.info_with_subjects(subject).await.unwrap();
        use futures_util::TryStreamExt;
        let counts: Vec<(String, usize)> = info.try_collect().await.unwrap();
        drop(stream.info().await);
        counts.into_iter().map(|(_, count)| count).sum()
    }
}
