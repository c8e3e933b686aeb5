//! `cynodectl dead ls` and `cynodectl dead show`.

use broker::Broker;
use operate::dead::{Letter, LetterState};
use serde_json::{Map, Value, json};
use subjects::{ErrorCode, Kind};

use super::all;
use crate::{
    error::{Error, Exit},
    print,
};

pub(super) async fn list(
    broker: &Broker,
    limit: usize,
    kind: Option<Kind>,
    reason: Option<ErrorCode>,
    json: bool,
) -> Result<Exit, Error> {
    let letters = all(broker, limit, |letter| {
        kind.is_none_or(|kind| letter.about.kind == kind)
            && reason.is_none_or(|reason| letter.about.reason == reason)
    })
    .await?;
    let states = LetterState::read_all(broker, &letters).await?;
    if json {
        letters.iter().zip(states).for_each(|(letter, state)| print::json(&summary(letter, state)));
    } else if letters.is_empty() {
        print::line("no dead letters");
    } else {
        let rows = letters.iter().zip(states).map(|(letter, state)| {
            let about = &letter.about;
            vec![
                letter.number.to_string(),
                about.kind.to_string(),
                about.reason.to_string(),
                state.as_str().to_owned(),
                about.deliveries.to_string(),
                letter.died_at.to_string(),
                letter.handoff_id().map_or_else(|| "?".to_owned(), |id| id.to_string()),
                print::sanitize(&about.message).chars().take(60).collect(),
            ]
        });
        let headings = ["NUMBER", "KIND", "REASON", "STATE", "DELIVERIES", "DIED", "HANDOFF", "WHY"];
        print::table(&headings, rows.collect());
    }
    Ok(Exit::Done)
}

pub(super) async fn one(broker: &Broker, number: u64, raw: bool, json: bool) -> Result<Exit, Error> {
    let letter = Letter::read(broker, number).await?.ok_or(operate::Error::NoSuchLetter(number))?;
    let (body, state) = (letter.body(broker).await?, LetterState::read(broker, &letter).await?);
    if raw {
        print::foreign_bytes(&body);
        return Ok(Exit::Done);
    }
    let readable = letter.readable(&body);
    if json {
        let mut out = summary(&letter, state);
        out["headers"] = letter
            .headers()
            .into_iter()
            .map(|(name, text)| (name, text.into()))
            .collect::<Map<_, _>>()
            .into();
        out["body"] = readable.unwrap_or(Value::Null);
        print::json(&out);
        return Ok(Exit::Done);
    }
    let about = &letter.about;
    print::line(&format!("{} handoff, dead-lettered as {}", about.kind, about.reason));
    print::line(&format!("why         {}", print::sanitize(&about.message)));
    let described = state
        .replay_refusal()
        .map_or_else(|| "can be replayed".to_owned(), |why| format!("{}: {why}", state.as_str()));
    print::line(&format!("state       {described}"));
    print::line(&format!("deliveries  {}", about.deliveries));
    print::line(&format!("published   {}", about.published_at));
    print::line(&format!("dead since  {} by {}", letter.died_at, print::sanitize(&about.instance)));
    for (name, value) in letter.headers() {
        print::line(&format!(
            "header      {}: {}",
            print::sanitize(&name),
            print::sanitize(&Value::from(value).to_string())
        ));
    }
    match readable {
        Some(value) => {
            print::line(&print::sanitize(&serde_json::to_string_pretty(&value).unwrap_or_default()))
        }
        None => {
            print::line(&format!("body        {} unreadable bytes; --raw prints them", body.len()));
        }
    }
    Ok(Exit::Done)
}

fn summary(letter: &Letter, state: LetterState) -> Value {
    let about = &letter.about;
    json!({
        "number": letter.number,
        "kind": about.kind,
        "reason": about.reason,
        "message": about.message,
        "deliveries": about.deliveries,
        "sequence": about.sequence,
        "published_at": about.published_at,
        "died_at": letter.died_at,
        "instance": about.instance,
        "handoff_id": letter.handoff_id(),
        "state": state.as_str(),
    })
}
