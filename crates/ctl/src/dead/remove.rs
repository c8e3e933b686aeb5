//! `cynodectl dead drop`.

use broker::Broker;
use operate::dead::delete;
use serde_json::json;

use super::selected;
use crate::{
    cli::LetterSelection,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(
    broker: &Broker,
    selection: &LetterSelection,
    yes: bool,
    json: bool,
) -> Result<Exit, Error> {
    // Unreadable messages can be removed by number. Explicit numbers need no confirmation; `--all` and
    // `--reason` do.
    let numbers: Vec<u64> = if selection.numbers.is_empty() {
        selected(broker, selection).await?.iter().map(|letter| letter.number).collect()
    } else {
        selection.numbers.clone()
    };
    if numbers.is_empty() {
        print::note("no dead letters to remove");
        return Ok(Exit::Done);
    }
    if selection.numbers.is_empty() && !yes {
        let count = numbers.len();
        if !print::confirm(&format!("permanently remove {count} dead letters?")) {
            return Err(Error::NotConfirmed);
        }
    }
    for number in numbers {
        delete(broker, number).await?;
        if json {
            print::json(&json!({ "number": number, "dropped": true }));
        } else {
            print::line(&format!("dropped {number}"));
        }
    }
    Ok(Exit::Done)
}
