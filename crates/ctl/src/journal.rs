//! A handoff's life, as its journal tells it.

mod words; // records in words

use async_nats::{HeaderMap, jetstream::consumer::pull::OrderedConfig};
use broker::Broker;
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use subjects::{Answer, HandoffId, Pattern, Role, Subject, journal::Entry, streams};
use time::OffsetDateTime;

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};
use words::Story;

/// One message of a run.
enum Page {
    Entry(Entry),
    /// What cannot be read is shown as such; it is the operator who has to know.
    Torn(String),
    Answer(Box<Answer>),
}

pub(crate) async fn run(broker: &Broker, command: cli::Journal, json: bool) -> Result<Exit, Error> {
    let cli::Journal::Show { handoff, follow } = command;
    let mut teller = Teller { story: Story::default(), json };
    if follow { teller.follow(broker, handoff).await } else { teller.tell_all(broker, handoff).await }
}

struct Teller {
    story: Story,
    json: bool,
}

impl Teller {
    async fn tell_all(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let mut found = None;
        for role in Role::ALL {
            let run = Pattern::Run(role, id);
            if let Some(last) = broker::last_under(&broker.jetstream, streams::RUNS, &run).await? {
                found = Some((role, last));
            }
        }
        let Some((role, last)) = found else { return Err(Error::NoJournal(id)) };
        let journal = Subject::Journal(role, id);
        let is_answered = last.subject.as_str() != journal.to_string();
        let ends = if is_answered {
            broker::last_on(&broker.jetstream, streams::RUNS, &journal).await?.map(|entry| entry.sequence)
        } else {
            Some(last.sequence)
        };
        if let Some(ends) = ends {
            for (sequence, body) in broker::all_on(&broker.jetstream, streams::RUNS, &journal, ends).await? {
                let page = read(broker, journal.to_string().as_str(), None, body).await?;
                self.tell(sequence, page);
            }
        }
        if is_answered {
            let page = read(broker, &last.subject, Some(&last.headers), last.payload.clone()).await?;
            self.tell_answer_at(last.time);
            self.tell(last.sequence, page);
        } else if !self.json {
            for line in self.story.so_far() {
                print::line(&line);
            }
        }
        Ok(Exit::Done)
    }

    /// From the beginning, then as it happens, until it is answered.
    async fn follow(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let stream =
            broker.jetstream.get_stream_no_info(streams::RUNS).await.map_err(|_| Error::NoStreams)?;
        let config = OrderedConfig { filter_subject: format!("*.run.{id}.*"), ..Default::default() };
        let consumer = stream.create_consumer(config).await.map_err(Error::nats)?;
        let mut messages = consumer.messages().await.map_err(Error::nats)?;
        if !self.json {
            print::note("following until it is answered; Ctrl-C ends it");
        }
        while let Some(message) = messages.next().await {
            let message = message.map_err(Error::nats)?;
            let info = message.info().map_err(Error::nats)?;
            let sequence = info.stream_sequence;
            self.tell_answer_at(info.published);
            let page =
                read(broker, &message.subject, message.headers.as_ref(), message.payload.clone()).await?;
            let exit = match &page {
                Page::Answer(found) => Some(answer::exit(found)),
                Page::Entry(_) | Page::Torn(_) => None,
            };
            self.tell(sequence, page);
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
        Ok(Exit::Done)
    }

    /// Answers do not say when they were given; the stream does.
    fn tell_answer_at(&mut self, time: OffsetDateTime) {
        self.story.answered_at = Some(time);
    }

    fn tell(&mut self, sequence: u64, page: Page) {
        match (self.json, page) {
            (true, Page::Entry(entry)) => print::json(&json!({ "sequence": sequence, "entry": entry })),
            (true, Page::Torn(why)) => print::json(&json!({ "sequence": sequence, "torn": why })),
            (true, Page::Answer(found)) => match *found {
                Answer::Completion(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
                Answer::Findings(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
            },
            (false, Page::Entry(entry)) => {
                for line in self.story.entry(&entry) {
                    print::line(&line);
                }
            }
            (false, Page::Torn(why)) => {
                print::line(&format!("message {sequence} cannot be read: {}", print::safe(&why)));
            }
            (false, Page::Answer(found)) => {
                for line in self.story.answer(&found) {
                    print::line(&line);
                }
            }
        }
    }
}

async fn read(
    broker: &Broker,
    subject: &str,
    headers: Option<&HeaderMap>,
    body: Bytes,
) -> Result<Page, Error> {
    if let Some(found) = answer::read(subject, headers, &body) {
        return Ok(
            found.map_or_else(|error| Page::Torn(error.to_string()), |found| Page::Answer(Box::new(found)))
        );
    }
    let entry = match Entry::decode(&body) {
        Ok(Entry { spilled: Some(spilled), .. }) => {
            Entry::decode(&broker::fetch(&broker.jetstream, &spilled.name).await?)
        }
        other => other,
    };
    Ok(entry.map_or_else(|error| Page::Torn(error.to_string()), Page::Entry))
}
