//! The contract as documents for implementers in other languages: JSON Schemas and an AsyncAPI description.
//!
//! Both are generated from the Rust types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::{
    CancelReply, Chat, Completion, Continue, Delta, Envelope, Event, Findings, InstanceStatus, Kind, Pattern,
    Plan, Role, Schedule, Subject, Verify, headers,
    job::{self, Job, JobCancel, JobResult},
    journal::Entry,
    node::{NodeOrders, NodeStatus},
    streams,
    workflow::Review,
    workflow_run::{self, WorkflowRun},
};

/// The JSON Schema of one message, and the name of the message.
#[derive(Debug)]
pub struct Document {
    pub name: &'static str,
    pub schema: Value,
}

impl Document {
    /// Returns the name of the schema file.
    pub fn file(&self) -> String {
        format!("{}.schema.json", self.name)
    }
}

/// Returns one schema for each message.
pub fn documents() -> Vec<Document> {
    vec![
        document::<Envelope<Chat>>("handoff-chat"),
        document::<Envelope<Schedule>>("handoff-schedule"),
        document::<Envelope<Plan>>("handoff-plan"),
        document::<Envelope<Continue>>("handoff-continue"),
        document::<Envelope<Review>>("handoff-review"),
        document::<Envelope<Verify>>("handoff-verify"),
        document::<Completion>("completion"),
        document::<Findings>("findings"),
        document::<Entry>("journal-entry"),
        document::<Delta>("delta"),
        document::<Event>("event"),
        document::<CancelReply>("cancel-reply"),
        document::<InstanceStatus>("instance-status"),
        document::<Job>("job"),
        document::<JobCancel>("job-cancel"),
        document::<job::Entry>("job-entry"),
        document::<JobResult>("job-result"),
        document::<NodeStatus>("node-status"),
        document::<NodeOrders>("node-orders"),
        document::<WorkflowRun>("workflow-run"),
    ]
}

fn document<T: JsonSchema>(name: &'static str) -> Document {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    Document { name, schema: schema.to_value() }
}

fn handoff_document(kind: Kind) -> &'static str {
    match kind {
        Kind::Chat => "handoff-chat",
        Kind::Schedule => "handoff-schedule",
        Kind::Plan => "handoff-plan",
        Kind::Continue => "handoff-continue",
        Kind::Review => "handoff-review",
        Kind::Verify => "handoff-verify",
    }
}

/// Returns the AsyncAPI 3.0 description from the worker's point of view. AsyncAPI has no bindings for
/// JetStream, so streams are named under `x-nats-jetstream`.
pub fn asyncapi(version: &str) -> Value {
    let mut channels = serde_json::Map::new();
    let mut operations = serde_json::Map::new();
    let mut add = |name: String, action: &str, address: String, messages: &[&str], stream: Option<&str>| {
        let messages: serde_json::Map<_, _> = messages
            .iter()
            .map(|message| {
                ((*message).to_owned(), json!({ "$ref": format!("#/components/messages/{message}") }))
            })
            .collect();
        let mut channel = json!({ "address": address, "messages": messages });
        if let Some(stream) = stream {
            channel["x-nats-jetstream"] = json!({ "stream": stream });
        }
        operations.insert(
            name.clone(),
            json!({ "action": action, "channel": { "$ref": format!("#/channels/{name}") } }),
        );
        channels.insert(name, channel);
    };
    // The stream names of the default layout; with another `nats.layout` analysts have their own streams.
    let layout = streams::Layout::default();
    for kind in Kind::ALL {
        let address = Subject::Handoff(kind).to_string();
        add(
            format!("take-{kind}"),
            "receive",
            address,
            &[handoff_document(kind)],
            Some(layout.handoffs(kind.role())),
        );
        let address = Subject::Dead(kind).to_string();
        add(format!("give-up-{kind}"), "send", address, &[handoff_document(kind)], Some(streams::DEAD));
    }
    for (role, message) in [(Role::ProjectManager, "completion"), (Role::ProjectAnalyst, "findings")] {
        let address = Pattern::Answers(role).to_string().replace('*', "{handoff_id}");
        add(format!("answer-{}", role.prefix()), "send", address, &[message], Some(layout.runs(role)));
        let address = format!("{}.run.{{handoff_id}}.journal", role.prefix());
        add(
            format!("journal-{}", role.prefix()),
            "send",
            address,
            &["journal-entry"],
            Some(layout.runs(role)),
        );
    }
    for (name, action, pattern, message) in [
        ("stream-text", "send", Pattern::Deltas, "delta"),
        ("report-progress", "send", Pattern::Events, "event"),
        ("cancel", "receive", Pattern::Cancels, "cancel-reply"),
    ] {
        add(name.to_owned(), action, pattern.to_string().replace('*', "{handoff_id}"), &[message], None);
    }
    add("announce".to_owned(), "send", Subject::Presence.to_string(), &["instance-status"], None);
    // What nodes take and send.
    for (name, action, address, messages, stream) in [
        ("take-job-of-a-class", "receive", "jobs.class.{class}", &["job"][..], Some(streams::JOBS)),
        ("take-job-of-a-node", "receive", "jobs.node.{node_id}", &["job"], Some(streams::JOBS)),
        ("cancel-job", "receive", "jobs.cancel.{job_id}", &["job-cancel"], Some(streams::JOB_RUNS)),
        ("journal-job", "send", "job.{job_id}.{node_id}.journal", &["job-entry"], Some(streams::JOB_RUNS)),
        ("end-job", "send", "job.{job_id}.{node_id}.result", &["job-result"], Some(streams::JOB_RUNS)),
        ("report-presence", "send", "node.presence.{node_id}", &["node-status", "node-orders"], None),
        // What runners take.
        ("take-workflow", "receive", workflow_run::SUBJECT, &["workflow-run"], Some(streams::WORKFLOWS)),
    ] {
        add(name.to_owned(), action, address.to_owned(), messages, stream);
    }

    let messages: serde_json::Map<_, _> = documents()
        .iter()
        .map(|document| {
            let message = json!({
                "contentType": "application/json",
                "headers": { "type": "object", "properties": {
                    headers::CONTENT_TYPE: { "enum": ["application/json", "application/msgpack"] },
                    headers::TRACEPARENT: { "type": "string" },
                }},
                "payload": { "$ref": format!("schemas/{}", document.file()) },
            });
            (document.name.to_owned(), message)
        })
        .collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "cynode-pma",
            "version": version,
            "description": "Handoffs in, one answer each out, over NATS JetStream. See README.md beside \
             this file.",
        },
        "defaultContentType": "application/json",
        "servers": { "nats": { "host": "127.0.0.1:4222", "protocol": "nats" } },
        "channels": channels,
        "operations": operations,
        "components": { "messages": messages },
    })
}
