//! Handoffs in work, and recent answers.

use std::ops::ControlFlow;

use broker::Broker;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use subjects::{
    Answer, Encoding, ErrorCode, HandoffId, InstanceId, Kind, Pattern, Role, Subject, Timestamp, Usage,
    headers,
    journal::{Claimed, Record},
};

use crate::{
    Error, answer, label,
    run::{self, Run},
    status,
};

/// A handoff that was delivered and is not settled.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct InWork {
    /// `None` if it cannot be read from the message.
    pub handoff_id: Option<HandoffId>,
    pub kind: Kind,
    pub published_at: Timestamp,
    /// `None` if no worker has claimed it yet.
    pub so_far: Option<RunProgress>,
    /// Last sequence of its run when this was read.
    #[serde(skip)]
    end: Option<u64>,
}

/// Progress of a run that has no answer yet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunProgress {
    pub attempt: u32,
    /// Instance that owns the handoff; `None` if it was handed back.
    pub instance: Option<InstanceId>,
    pub last_at: Timestamp,
    pub usage: Usage,
}

/// A handoff that has its answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Answered {
    pub handoff_id: HandoffId,
    pub kind: Kind,
    /// Status of the answer.
    pub status: String,
    pub error: Option<ErrorCode>,
    pub at: Timestamp,
    pub attempts: u32,
    pub instance: InstanceId,
    pub usage: Usage,
}

/// Returns handoffs in work by kind, oldest first, at most `limit` of each kind. The progress of a run that
/// has not changed since `before` is reused: journals can be large, and the console refreshes often.
pub async fn in_work(broker: &Broker, limit: u64, before: &[InWork]) -> Result<Vec<InWork>, Error> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        let Some(queue) = status::consumer(broker, kind).await else { continue };
        if queue.num_ack_pending == 0 {
            continue;
        }
        let (from, to) = (queue.ack_floor.stream_sequence + 1, queue.delivered.stream_sequence);
        let subject = Subject::Handoff(kind).to_string();
        let stream = broker.layout.handoffs(kind.role());
        let batch = broker::read_batch(&broker.jetstream, stream, &subject, from, limit).await?;
        // Settled messages are no longer in the queue.
        for message in batch.into_iter().filter(|message| message.sequence <= to) {
            let sent = Some(&message.headers);
            let encoding = Encoding::from_content_type(headers::get_any_case(sent, headers::CONTENT_TYPE));
            let handoff_id = encoding.ok().and_then(|encoding| {
                subjects::Body::inspect(encoding, &message.payload).envelope_fields().handoff_id
            });
            let published_at = Timestamp::new(message.time).unwrap_or_else(|_| Timestamp::epoch());
            found.push(InWork { handoff_id, kind, published_at, so_far: None, end: None });
        }
    }
    let reading = found.into_iter().map(async |mut it| {
        if let Some(id) = it.handoff_id {
            it.end = run::last_sequence(broker, id).await?;
            it.so_far = match before.iter().find(|old| old.handoff_id == Some(id) && old.end == it.end) {
                Some(old) => old.so_far.clone(),
                None => Run::read(broker, id).await?.as_ref().and_then(RunProgress::of),
            };
        }
        Ok(it)
    });
    join_all(reading).await.into_iter().collect()
}

/// Returns the newest answers, newest first.
pub async fn answered(broker: &Broker, limit: usize) -> Result<Vec<Answered>, Error> {
    let mut found = Vec::new();
    for role in Role::ALL {
        let (answers, before) = (Pattern::Answers(role).to_string(), found.len());
        broker::scan_newest_first(&broker.jetstream, broker.layout.runs(role), &answers, |message| {
            let read = answer::read(&message.subject, Some(&message.headers), &message.payload);
            if let Some(Ok(answer)) = read {
                let at = Timestamp::new(message.time).unwrap_or_else(|_| Timestamp::epoch());
                found.push(Answered::of(&answer, at));
            }
            if found.len() - before < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .await?;
    }
    found.sort_by_key(|it| std::cmp::Reverse(it.at.at()));
    found.truncate(limit);
    Ok(found)
}

impl RunProgress {
    /// Sums up a run. Returns `None` if it has no readable entry.
    pub fn of(run: &Run) -> Option<Self> {
        let mut progress: Option<Self> = None;
        for entry in run.entries() {
            let progress = progress.get_or_insert_with(|| Self {
                attempt: 0,
                instance: None,
                last_at: entry.at.clone(),
                usage: Usage::default(),
            });
            progress.last_at = entry.at.clone();
            entry.records.iter().for_each(|record| progress.add(record));
        }
        progress
    }

    fn add(&mut self, record: &Record) {
        let usage = &mut self.usage;
        match record {
            Record::Claimed(Claimed { attempt, instance, .. }) => {
                (self.attempt, self.instance) = (*attempt, Some(instance.clone()));
            }
            Record::Released => self.instance = None,
            Record::ModelTurn(turn) => {
                usage.model_calls += 1;
                usage.prompt_tokens += turn.reply.tokens.prompt;
                usage.completion_tokens += turn.reply.tokens.completion;
                if let Some(cost) = turn.reply.cost_usd {
                    *usage.cost_usd.get_or_insert(0.0) += cost;
                }
            }
            Record::ToolResult(_) => usage.tool_calls += 1,
            Record::Context(_) | Record::ToolIntent(_) | Record::Verified(_) | Record::Still => {}
        }
    }
}

impl Answered {
    fn of(answer: &Answer, at: Timestamp) -> Self {
        let error = answer.error().map(|error| error.code);
        let (kind, status, attempts, instance, usage) = match answer {
            Answer::Completion(it) => (it.kind, label(&it.status), it.attempts, &it.instance, it.usage),
            Answer::Findings(it) => (it.kind, label(&it.status), it.attempts, &it.instance, it.usage),
        };
        let (handoff_id, instance) = (answer.handoff_id(), instance.clone());
        Self { handoff_id, kind, status, error, at, attempts, instance, usage }
    }
}
