//! A test orchestrator: publishes handoffs and reads answers, journals and streams.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use async_nats::{
    HeaderMap,
    jetstream::{self, stream::DiscardPolicy},
};
use futures_util::StreamExt;
use serde_json::Value;
use subjects::{
    Answer, Chat, ChatMessage, ChatRole, Completion, Context, Encoding, Evidence, Findings, Handoff,
    HandoffId, Kind, MODEL_ID, Pattern, Role, Schedule, SchedulePayloadType, Scope, Subject, Timestamp,
    Verify, Work, headers,
    journal::Entry,
    streams::{self, Layout},
    workflow,
};

use crate::{Nats, eventually, eventually_within};

/// Returns a handoff with a new id, issued now.
pub fn handoff(work: Work) -> Handoff {
    Handoff {
        id: HandoffId::now(),
        issued_at: Timestamp::now(),
        deadline: None,
        reply_to: None,
        scope: Scope::default(),
        context: Context::default(),
        replays: Vec::new(),
        work,
    }
}

pub fn chat(text: &str) -> Handoff {
    handoff(Work::Chat(Chat {
        model: MODEL_ID.to_owned(),
        messages: vec![ChatMessage { role: ChatRole::User, content: text.to_owned() }],
        stream: false,
        temperature: None,
        max_tokens: None,
    }))
}

pub fn schedule(prompt: &str) -> Handoff {
    handoff(Work::Schedule(Schedule {
        schedule_id: "nightly".parse().unwrap(),
        run_id: "run-1".parse().unwrap(),
        fired_at: Timestamp::now(),
        payload_type: SchedulePayloadType::Prompt,
        payload: Value::from(prompt),
    }))
}

pub fn verify(task: &str) -> Handoff {
    handoff(Work::Verify(Verify {
        task_id: task.parse().unwrap(),
        acceptance_criteria: vec!["it works".to_owned()],
        artifacts: Vec::new(),
        // As the typical judgement quotes it.
        evidence: vec![Evidence {
            label: "logs/deploy.txt".to_owned(),
            content: "published in 212 s".to_owned(),
        }],
        policy: None,
    }))
}

/// Returns the first of three reviews of a step that succeeded.
pub fn review(task: &str, step: workflow::Step) -> Handoff {
    handoff(Work::Review(Box::new(workflow::Review {
        task_id: task.parse().unwrap(),
        step,
        result: workflow::StepResult {
            outcome: workflow::Outcome::Succeeded,
            end: Some(subjects::job::End::Exited { code: 0 }),
            exit_code: Some(0),
            // As the typical judgement quotes it.
            output_tail: Some("published in 212 s\n".to_owned()),
            artifacts: vec!["site/index.html".to_owned()],
            answer: None,
            error: None,
        },
        criteria: Vec::new(),
        iteration: std::num::NonZeroU32::MIN,
        max_iterations: std::num::NonZeroU32::MIN.saturating_add(2),
    })))
}

/// Returns a step that runs a script and has one criterion.
pub fn job_step(name: &str) -> workflow::Step {
    workflow::Step {
        name: name.to_owned(),
        description: "Publish the pages.".to_owned(),
        kind: workflow::StepKind::Job,
        script: Some("make publish".to_owned()),
        files: Vec::new(),
        artifacts: vec!["**".to_owned()],
        outputs: vec!["site/**".to_owned()],
        network: Vec::new(),
        seconds: Some(60),
        criteria: vec!["It was published".to_owned()],
        depends_on: Vec::new(),
        needs_approval: false,
    }
}

/// An orchestrator with its own connection.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    pub client: async_nats::Client,
    pub jetstream: jetstream::Context,
    pub layout: Layout,
}

impl Orchestrator {
    pub async fn connect(nats: &Nats) -> Self {
        Self::over(nats.client().await)
    }

    pub fn over(client: async_nats::Client) -> Self {
        Self { jetstream: jetstream::new(client.clone()), client, layout: Layout::default() }
    }

    /// Uses the streams of this layout.
    #[must_use]
    pub fn laid_out(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Publishes a handoff as the contract requires, waits for the PubAck and returns the id.
    pub async fn publish(&self, handoff: &Handoff) -> HandoffId {
        let mut headers = HeaderMap::new();
        headers.insert(headers::MSG_ID, handoff.id.to_string());
        let body = handoff.encode(Encoding::Json).unwrap();
        self.publish_raw(handoff.kind(), headers, body).await;
        handoff.id
    }

    /// Publishes a handoff in an encoding.
    pub async fn publish_as(&self, encoding: Encoding, handoff: &Handoff) {
        let mut headers = HeaderMap::new();
        headers.insert(headers::MSG_ID, handoff.id.to_string());
        headers.insert(headers::CONTENT_TYPE, encoding.content_type());
        self.publish_raw(handoff.kind(), headers, handoff.encode(encoding).unwrap()).await;
    }

    /// Publishes a handoff under a lease.
    pub async fn publish_under(&self, handoff: &Handoff, lease: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(headers::MSG_ID, handoff.id.to_string());
        headers.insert(headers::LEASE, lease);
        self.publish_raw(handoff.kind(), headers, handoff.encode(Encoding::Json).unwrap()).await;
    }

    /// Publishes any body to the subject of a kind and returns its sequence.
    pub async fn publish_raw(&self, kind: Kind, headers: HeaderMap, body: Vec<u8>) -> u64 {
        let subject = Subject::Handoff(kind).to_string();
        let acknowledged =
            self.jetstream.publish_with_headers(subject, headers, body.into()).await.expect("published");
        acknowledged.await.expect("stored").sequence
    }

    /// Returns the stored answer, if there is one.
    pub async fn answer(&self, kind: Kind, id: HandoffId) -> Option<Answer> {
        let stream = self.jetstream.get_stream_no_info(self.layout.runs(kind.role())).await.ok()?;
        let subject = Subject::answer(kind, id).to_string();
        let message = stream.get_last_raw_message_by_subject(&subject).await.ok()?;
        let content_type = message.headers.get(headers::CONTENT_TYPE).map(|value| value.as_str());
        let encoding = Encoding::from_content_type(content_type).expect("an encoding of the contract");
        Some(Answer::decode(kind.role(), encoding, &message.payload).expect("an answer of the contract"))
    }

    /// Waits up to 30 seconds for the answer.
    pub async fn wait_for_answer(&self, kind: Kind, id: HandoffId) -> Answer {
        self.wait_for_answer_within(Duration::from_secs(30), kind, id).await
    }

    /// Waits up to 30 seconds for the completion of a handoff to a manager.
    pub async fn completion(&self, kind: Kind, id: HandoffId) -> Completion {
        match self.wait_for_answer(kind, id).await {
            Answer::Completion(completion) => completion,
            Answer::Findings(findings) => panic!("findings for a handoff to a manager: {findings:?}"),
        }
    }

    /// Waits up to 30 seconds for the findings of a verification.
    pub async fn findings(&self, id: HandoffId) -> Findings {
        match self.wait_for_answer(Kind::Verify, id).await {
            Answer::Findings(findings) => findings,
            Answer::Completion(completion) => panic!("{completion:?}"),
        }
    }

    pub async fn wait_for_answer_within(&self, patience: Duration, kind: Kind, id: HandoffId) -> Answer {
        eventually_within(patience, &format!("an answer to {id}"), || self.answer(kind, id)).await
    }

    /// Waits until `count` handoffs of a role are answered, and returns how often each was answered.
    pub async fn all_answers(
        &self,
        role: Role,
        count: usize,
        patience: Duration,
    ) -> HashMap<HandoffId, usize> {
        let until = Instant::now() + patience;
        // A cluster that has just lost a node may take a while to create the consumer.
        let consumer = eventually_within(patience, "a consumer for the answers", async || {
            let stream = self.jetstream.get_stream(self.layout.runs(role)).await.ok()?;
            let config = jetstream::consumer::pull::OrderedConfig {
                filter_subject: Pattern::Answers(role).to_string(),
                ..Default::default()
            };
            stream.create_consumer(config).await.ok()
        })
        .await;
        let mut messages = consumer.messages().await.expect("messages");
        let mut seen: HashMap<HandoffId, usize> = HashMap::new();
        // Waits a little longer, so that surplus answers are noticed.
        let mut quiet_until = None;
        loop {
            // After an error the ordered consumer recreates itself.
            if let Ok(Some(Ok(message))) =
                tokio::time::timeout(Duration::from_millis(200), messages.next()).await
            {
                match message.subject.parse() {
                    Ok(Subject::Completion(id) | Subject::Findings(id)) => *seen.entry(id).or_default() += 1,
                    other => panic!("not an answer: {other:?}"),
                }
            }
            if seen.len() >= count && quiet_until.is_none() {
                quiet_until = Some(Instant::now() + Duration::from_millis(500));
            }
            if quiet_until.is_some_and(|until| Instant::now() > until) {
                return seen;
            }
            assert!(
                Instant::now() < until,
                "{} of {count} handoffs answered within {patience:?}",
                seen.len()
            );
        }
    }

    /// Returns the number of messages in the queues of both roles.
    pub async fn queued(&self) -> u64 {
        let queues: BTreeSet<_> = Role::ALL.into_iter().map(|role| self.layout.handoffs(role)).collect();
        let mut queued = 0;
        for queue in queues {
            queued += self.stored(queue).await;
        }
        queued
    }

    /// Waits until no handoff is queued or in flight. An answer is stored shortly before its handoff leaves
    /// the queue.
    pub async fn wait_until_settled(&self) {
        eventually("an empty queue", async || (self.queued().await == 0).then_some(())).await;
    }

    /// Returns the number of messages in a stream.
    pub async fn stored(&self, stream: &str) -> u64 {
        self.jetstream.get_stream(stream).await.expect("the stream is there").cached_info().state.messages
    }

    /// Returns the journal of a manager's handoff. Spilled entries are returned as references.
    pub async fn journal(&self, id: HandoffId) -> Vec<Entry> {
        let subject = Subject::Journal(Role::ProjectManager, id).to_string();
        let runs = self.contents(streams::RUNS).await;
        let entries = runs.iter().filter(|message| message.subject.as_str() == subject);
        entries.map(|message| Entry::decode(&message.payload).expect("an entry of the contract")).collect()
    }

    /// Publishes any body to the journal of a manager's handoff.
    pub async fn write_journal(&self, id: HandoffId, body: impl Into<bytes::Bytes>) {
        let subject = Subject::Journal(Role::ProjectManager, id).to_string();
        let stored = self.jetstream.publish(subject, body.into()).await.expect("published");
        stored.await.expect("stored");
    }

    /// Returns all answers in the managers' stream of runs, oldest first.
    pub async fn answers(&self) -> Vec<jetstream::message::StreamMessage> {
        let mut runs = self.contents(streams::RUNS).await;
        runs.retain(|message| {
            matches!(message.subject.parse(), Ok(Subject::Completion(_) | Subject::Findings(_)))
        });
        runs
    }

    /// Returns all messages of a stream, oldest first.
    pub async fn contents(&self, stream: &str) -> Vec<jetstream::message::StreamMessage> {
        let stream = self.jetstream.get_stream(stream).await.expect("the stream is there");
        let state = &stream.cached_info().state;
        let mut out = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            if let Ok(message) = stream.get_raw_message(sequence).await {
                out.push(message);
            }
        }
        out
    }

    /// Makes the managers' stream of runs refuse all writes, as a full stream does, or accept them again.
    pub async fn refuse_runs(&self, refuse: bool) {
        let info = self.jetstream.get_stream(streams::RUNS).await.expect("the stream").cached_info().clone();
        let mut config = info.config;
        (config.max_messages, config.discard) = if refuse {
            (i64::try_from(info.state.messages.max(1)).expect("few messages"), DiscardPolicy::New)
        } else {
            (-1, DiscardPolicy::Old)
        };
        self.jetstream.update_stream(config).await.expect("updated");
    }

    pub async fn consumer(&self, kind: Kind) -> jetstream::consumer::Info {
        let stream =
            self.jetstream.get_stream_no_info(self.layout.handoffs(kind.role())).await.expect("a stream");
        stream.consumer_info(streams::consumer_name(kind)).await.expect("the consumer is there")
    }
}
