use std::path::Path;

use async_nats::HeaderMap;
use broker::Broker;
use bytes::Bytes;
use serde_json::{Value, json};
use subjects::{Encoding, HandoffId, Subject, Timestamp, headers, streams};

use super::{Letter, chosen, delete};
use crate::{
    cli::Which,
    error::{Error, Exit},
    handoff::{publish, sign},
    print,
};

pub(super) async fn run(
    broker: &Broker,
    which: &Which,
    key: Option<&Path>,
    json: bool,
) -> Result<Exit, Error> {
    let letters = chosen(broker, which).await?;
    if letters.is_empty() {
        print::note("no dead letters to replay");
    }
    for letter in letters {
        let replay = Replay::of(broker, &letter, key).await?;
        publish(broker, &Subject::Handoff(letter.about.kind), &replay.headers, &replay.body).await?;
        // Only now: a letter whose replay was not stored must stay.
        delete(broker, letter.number).await?;
        replay.notes.iter().for_each(|note| print::note(note));
        if json {
            print::json(
                &json!({ "number": letter.number, "handoff_id": replay.id, "replay_of": replay.was }),
            );
        } else {
            let id = replay.id.map_or_else(|| "unreadable handoff".to_owned(), |id| id.to_string());
            print::line(&format!("replayed {} as {id}", letter.number));
        }
    }
    Ok(Exit::Done)
}

/// A handoff made ready to be published once more.
struct Replay {
    /// Under which id it goes out; `None` when the body cannot be read.
    id: Option<HandoffId>,
    was: Option<HandoffId>,
    headers: HeaderMap,
    body: Bytes,
    /// What was changed, for the person.
    notes: Vec<String>,
}

impl Replay {
    async fn of(broker: &Broker, letter: &Letter, key: Option<&Path>) -> Result<Self, Error> {
        let body = letter.body(broker).await?;
        let was = letter.handoff_id_in(&body);
        let mut replay = Self { id: was, was, headers: kept(letter), body, notes: Vec::new() };
        let readable = letter.encoding().and_then(|encoding| {
            let value: Value = subjects::decode(encoding, &replay.body).ok()?;
            value.is_object().then_some((encoding, value))
        });
        if let (Some(was), Some((encoding, mut value))) = (replay.was, readable) {
            let changed = replay.change(broker, letter, was, &mut value).await?;
            if changed {
                replay.body = subjects::encode(encoding, &value)?.into();
            }
            replay.sign(letter, key, changed, encoding)?;
        } else {
            replay.notes.push(format!("{}: the body cannot be read; it goes out as it was.", letter.number));
        }
        let message_id = match (replay.id, replay.was) {
            (Some(id), was) if Some(id) != was => id.to_string(),
            // The queue still remembers the id as it was and would drop a second one of it.
            (id, _) => {
                let id = id.map_or_else(String::new, |id| id.to_string());
                format!("replay:{}:{id}", letter.number)
            }
        };
        replay.headers.insert(headers::MSG_ID, message_id);
        Ok(replay)
    }

    /// Gives it a new id if it has been answered, and drops a deadline that has passed.
    async fn change(
        &mut self,
        broker: &Broker,
        letter: &Letter,
        was: HandoffId,
        value: &mut Value,
    ) -> Result<bool, Error> {
        let mut changed = false;
        let answer = Subject::answer(letter.about.kind, was);
        if broker::last_on(&broker.jetstream, streams::RUNS, &answer).await?.is_some() {
            let id = was.replayed(letter.number);
            value["handoff_id"] = id.to_string().into();
            value["issued_at"] = Timestamp::now().to_string().into();
            self.id = Some(id);
            self.notes
                .push(format!("{}: {was} has its answer for ever; it goes out as {id}.", letter.number));
            changed = true;
        }
        let deadline = value["deadline"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        if deadline.is_some_and(|deadline| deadline.at() <= time::OffsetDateTime::now_utc()) {
            value["deadline"] = Value::Null;
            self.notes.push(format!("{}: its deadline has passed; it goes out without one.", letter.number));
            changed = true;
        }
        Ok(changed)
    }

    fn sign(
        &mut self,
        letter: &Letter,
        key: Option<&Path>,
        changed: bool,
        encoding: Encoding,
    ) -> Result<(), Error> {
        if let Some(key) = key {
            let signature = sign(key, &Subject::Handoff(letter.about.kind), encoding, &self.body)?;
            self.headers.insert(headers::SIGNATURE, signature);
        } else if changed && self.headers.get(headers::SIGNATURE).is_some() {
            let mut unsigned = HeaderMap::new();
            for (name, values) in
                self.headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != headers::SIGNATURE)
            {
                values.iter().for_each(|value| unsigned.append(name.clone(), value.clone()));
            }
            self.headers = unsigned;
            self.notes
                .push(format!("{}: its signature no longer fits; sign it anew with --sign.", letter.number));
        }
        Ok(())
    }
}

/// The headers that speak about the body. Those for the server are not sent again.
fn kept(letter: &Letter) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, values) in letter.about.original.iter() {
        let text: &str = name.as_ref();
        if !text.starts_with("Nats-") {
            values.iter().for_each(|value| out.append(name.clone(), value.clone()));
        }
    }
    out
}
