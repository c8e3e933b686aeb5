//! Reads and follows the run of a handoff: its journal entries and its answer.

use std::pin::Pin;

use async_nats::{
    HeaderMap,
    jetstream::{consumer::pull::OrderedConfig, message::StreamMessage},
};
use broker::Broker;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::select_all};
use subjects::{
    Answer, HandoffId, Pattern, Role, Subject,
    journal::{Entry, Unreadable},
};
use time::OffsetDateTime;

use crate::{Error, answer};

/// Journal entries and answer of a handoff, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: HandoffId,
    /// Role that the handoff is for.
    pub role: Role,
    pub messages: Vec<RunMessage>,
}

/// One message of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMessage {
    pub sequence: u64,
    pub content: RunContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RunContent {
    Entry(Entry),
    /// Kept rather than skipped, so that the operator sees it.
    Unreadable(Unreadable),
    /// `at` is the time in the stream, since an answer does not contain one.
    Answer {
        at: OffsetDateTime,
        answer: Box<Answer>,
    },
}

impl Run {
    /// Reads a run. Returns `None` if no worker has claimed the handoff, or if its run has expired.
    pub async fn read(broker: &Broker, id: HandoffId) -> Result<Option<Self>, Error> {
        let Some((role, last)) = last(broker, id).await? else { return Ok(None) };
        let (journal, runs) = (Subject::Journal(role, id), broker.layout.runs(role));
        let is_answered = last.subject.as_str() != journal.to_string();
        let journal_end = if is_answered {
            broker::last_on(&broker.jetstream, runs, &journal).await?.map(|entry| entry.sequence)
        } else {
            Some(last.sequence)
        };
        let mut messages = Vec::new();
        if let Some(up_to) = journal_end {
            for (sequence, body) in broker::all_on(&broker.jetstream, runs, &journal, up_to).await? {
                let content = entry(broker, role, &body).await?;
                messages.push(RunMessage { sequence, content });
            }
        }
        if is_answered {
            let content =
                read(broker, role, &last.subject, Some(&last.headers), last.payload.clone(), last.time)
                    .await?;
            messages.push(RunMessage { sequence: last.sequence, content });
        }
        Ok(Some(Self { id, role, messages }))
    }

    /// Returns the sequence of the last message, 0 if there is none.
    pub fn last_sequence(&self) -> u64 {
        self.messages.last().map_or(0, |message| message.sequence)
    }

    /// Returns the answer and when it was stored.
    pub fn answer(&self) -> Option<(OffsetDateTime, &Answer)> {
        self.messages.iter().rev().find_map(|message| match &message.content {
            RunContent::Answer { at, answer } => Some((*at, &**answer)),
            RunContent::Entry(_) | RunContent::Unreadable(_) => None,
        })
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.messages.iter().filter_map(|message| match &message.content {
            RunContent::Entry(entry) => Some(entry),
            RunContent::Unreadable(_) | RunContent::Answer { .. } => None,
        })
    }
}

/// Returns the sequence of the last message of a run; `None` if there is no run.
pub async fn last_sequence(broker: &Broker, id: HandoffId) -> Result<Option<u64>, Error> {
    Ok(last(broker, id).await?.map(|(_, last)| last.sequence))
}

async fn last(broker: &Broker, id: HandoffId) -> Result<Option<(Role, StreamMessage)>, Error> {
    let mut found = None;
    for role in Role::ALL {
        let run = Pattern::Run(role, id);
        if let Some(last) = broker::last_on(&broker.jetstream, broker.layout.runs(role), &run).await? {
            found = Some((role, last));
        }
    }
    Ok(found)
}

/// Streams a run from the beginning and continues with new messages. The stream has no end; the caller stops
/// at the answer.
pub async fn follow(
    broker: &Broker,
    id: HandoffId,
) -> Result<Pin<Box<dyn Stream<Item = Result<RunMessage, Error>> + Send>>, Error> {
    // The handoff may not have been claimed yet, so its role is unknown.
    let mut by_role = Vec::new();
    for role in Role::ALL {
        let stream = broker.jetstream.get_stream_no_info(broker.layout.runs(role)).await;
        let filter_subject = Pattern::Run(role, id).to_string();
        let config = OrderedConfig { filter_subject, ..Default::default() };
        let consumer = stream.map_err(|_| Error::NoStreams)?.create_consumer(config).await;
        let messages = consumer.map_err(Error::nats)?.messages().await.map_err(Error::nats)?;
        by_role.push(messages.map(move |message| (role, message)));
    }
    let broker = broker.clone();
    Ok(Box::pin(select_all(by_role).then(move |(role, message)| {
        let broker = broker.clone();
        async move {
            let message = message.map_err(Error::nats)?;
            let info = message.info().map_err(Error::nats)?;
            let (sequence, at) = (info.stream_sequence, info.published);
            let body = message.payload.clone();
            let content = read(&broker, role, &message.subject, message.headers.as_ref(), body, at).await?;
            Ok(RunMessage { sequence, content })
        }
    })))
}

async fn read(
    broker: &Broker,
    role: Role,
    subject: &str,
    headers: Option<&HeaderMap>,
    body: Bytes,
    at: OffsetDateTime,
) -> Result<RunContent, Error> {
    match answer::read(subject, headers, &body) {
        Some(Ok(answer)) => Ok(RunContent::Answer { at, answer: Box::new(answer) }),
        Some(Err(error)) => Ok(RunContent::Unreadable(Unreadable::Malformed(error.to_string()))),
        None => entry(broker, role, &body).await,
    }
}

async fn entry(broker: &Broker, role: Role, body: &[u8]) -> Result<RunContent, Error> {
    let entry = match Entry::decode(body) {
        Ok(Entry { spilled: Some(spilled), .. }) => {
            Entry::decode(&broker::fetch(broker, role, &spilled.name).await?)
        }
        other => other,
    };
    Ok(entry.map_or_else(RunContent::Unreadable, RunContent::Entry))
}
