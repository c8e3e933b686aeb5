//! What was done on a handoff, as its journal and its answer tell it.

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

/// Everything that is stored about a handoff, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: HandoffId,
    /// Of whoever takes it up.
    pub role: Role,
    pub pages: Vec<Page>,
}

/// One message of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub sequence: u64,
    pub said: Said,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Entry(Entry),
    /// What cannot be read is told as such; it is the operator who has to know.
    Unreadable(Unreadable),
    /// Answers do not say when they were given; the stream does.
    Answer {
        at: OffsetDateTime,
        answer: Box<Answer>,
    },
}

impl Run {
    /// `None` when nobody has taken the handoff up, or that is so long ago that it is forgotten.
    pub async fn read(broker: &Broker, id: HandoffId) -> Result<Option<Self>, Error> {
        let Some((role, last)) = last(broker, id).await? else { return Ok(None) };
        let (journal, runs) = (Subject::Journal(role, id), broker.layout.runs(role));
        let is_answered = last.subject.as_str() != journal.to_string();
        let ends = if is_answered {
            broker::last_on(&broker.jetstream, runs, &journal).await?.map(|entry| entry.sequence)
        } else {
            Some(last.sequence)
        };
        let mut pages = Vec::new();
        if let Some(ends) = ends {
            for (sequence, body) in broker::all_on(&broker.jetstream, runs, &journal, ends).await? {
                let said = entry(broker, role, &body).await?;
                pages.push(Page { sequence, said });
            }
        }
        if is_answered {
            let said =
                read(broker, role, &last.subject, Some(&last.headers), last.payload.clone(), last.time)
                    .await?;
            pages.push(Page { sequence: last.sequence, said });
        }
        Ok(Some(Self { id, role, pages }))
    }

    /// Where the chain of its messages ends.
    pub fn end(&self) -> u64 {
        self.pages.last().map_or(0, |page| page.sequence)
    }

    pub fn answer(&self) -> Option<(OffsetDateTime, &Answer)> {
        self.pages.iter().rev().find_map(|page| match &page.said {
            Said::Answer { at, answer } => Some((*at, &**answer)),
            Said::Entry(_) | Said::Unreadable(_) => None,
        })
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pages.iter().filter_map(|page| match &page.said {
            Said::Entry(entry) => Some(entry),
            Said::Unreadable(_) | Said::Answer { .. } => None,
        })
    }
}

/// Where a run ends now.
pub async fn end(broker: &Broker, id: HandoffId) -> Result<Option<u64>, Error> {
    Ok(last(broker, id).await?.map(|(_, last)| last.sequence))
}

async fn last(broker: &Broker, id: HandoffId) -> Result<Option<(Role, StreamMessage)>, Error> {
    let mut found = None;
    for role in Role::ALL {
        let run = Pattern::Run(role, id);
        if let Some(last) = broker::last_under(&broker.jetstream, broker.layout.runs(role), &run).await? {
            found = Some((role, last));
        }
    }
    Ok(found)
}

/// From the beginning, then as it happens. Whoever listens ends it, with the answer for example.
pub async fn follow(
    broker: &Broker,
    id: HandoffId,
) -> Result<Pin<Box<dyn Stream<Item = Result<Page, Error>> + Send>>, Error> {
    // Nobody may have taken it up yet, so it is not known in which role it will be.
    let mut of_roles = Vec::new();
    for role in Role::ALL {
        let stream = broker.jetstream.get_stream_no_info(broker.layout.runs(role)).await;
        let filter_subject = Pattern::Run(role, id).to_string();
        let config = OrderedConfig { filter_subject, ..Default::default() };
        let consumer = stream.map_err(|_| Error::NoStreams)?.create_consumer(config).await;
        let messages = consumer.map_err(Error::nats)?.messages().await.map_err(Error::nats)?;
        of_roles.push(messages.map(move |message| (role, message)));
    }
    let broker = broker.clone();
    Ok(Box::pin(select_all(of_roles).then(move |(role, message)| {
        let broker = broker.clone();
        async move {
            let message = message.map_err(Error::nats)?;
            let info = message.info().map_err(Error::nats)?;
            let (sequence, at) = (info.stream_sequence, info.published);
            let body = message.payload.clone();
            let said = read(&broker, role, &message.subject, message.headers.as_ref(), body, at).await?;
            Ok(Page { sequence, said })
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
) -> Result<Said, Error> {
    match answer::read(subject, headers, &body) {
        Some(Ok(answer)) => Ok(Said::Answer { at, answer: Box::new(answer) }),
        Some(Err(error)) => Ok(Said::Unreadable(Unreadable::Torn(error.to_string()))),
        None => entry(broker, role, &body).await,
    }
}

async fn entry(broker: &Broker, role: Role, body: &[u8]) -> Result<Said, Error> {
    let entry = match Entry::decode(body) {
        Ok(Entry { spilled: Some(spilled), .. }) => {
            Entry::decode(&broker::fetch(broker, role, &spilled.name).await?)
        }
        other => other,
    };
    Ok(entry.map_or_else(Said::Unreadable, Said::Entry))
}
