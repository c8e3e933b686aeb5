use broker::Broker;
use operate::dead::{Fate, Letter};
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
    let fates = Fate::of_all(broker, &letters).await?;
    if json {
        letters.iter().zip(fates).for_each(|(letter, fate)| print::json(&summary(letter, fate)));
    } else if letters.is_empty() {
        print::line("no dead letters");
    } else {
        let rows = letters.iter().zip(fates).map(|(letter, fate)| {
            let about = &letter.about;
            vec![
                letter.number.to_string(),
                about.kind.to_string(),
                about.reason.to_string(),
                fate.as_str().to_owned(),
                about.deliveries.to_string(),
                letter.died_at.to_string(),
                letter.handoff_id().map_or_else(|| "?".to_owned(), |id| id.to_string()),
                print::safe(&about.message).chars().take(60).collect(),
            ]
        });
        let headings = ["NUMBER", "KIND", "REASON", "STATE", "DELIVERIES", "DIED", "HANDOFF", "WHY"];
        print::table(&headings, rows.collect());
    }
    Ok(Exit::Done)
}

pub(super) async fn one(broker: &Broker, number: u64, raw: bool, json: bool) -> Result<Exit, Error> {
    let letter = Letter::read(broker, number).await?.ok_or(operate::Error::NoSuchLetter(number))?;
    let (body, fate) = (letter.body(broker).await?, Fate::of(broker, &letter).await?);
    if raw {
        print::bytes(&body);
        return Ok(Exit::Done);
    }
    let readable = letter.readable(&body);
    if json {
        let mut out = summary(&letter, fate);
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
    print::line(&format!("why         {}", print::safe(&about.message)));
    let state = fate
        .refusal()
        .map_or_else(|| "can be replayed".to_owned(), |why| format!("{}: {why}", fate.as_str()));
    print::line(&format!("state       {state}"));
    print::line(&format!("deliveries  {}", about.deliveries));
    print::line(&format!("published   {}", about.published_at));
    print::line(&format!("dead since  {} by {}", letter.died_at, print::safe(&about.instance)));
    for (name, value) in letter.headers() {
        print::line(&format!(
            "header      {}: {}",
            print::safe(&name),
            print::safe(&Value::from(value).to_string())
        ));
    }
    match readable {
        Some(value) => print::line(&print::safe(&serde_json::to_string_pretty(&value).unwrap_or_default())),
        None => {
            print::line(&format!("body        {} bytes that cannot be read; --raw prints them", body.len()));
        }
    }
    Ok(Exit::Done)
}

fn summary(letter: &Letter, fate: Fate) -> Value {
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
        "state": fate.as_str(),
    })
}
