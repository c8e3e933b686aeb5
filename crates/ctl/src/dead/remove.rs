use broker::Broker;
use operate::dead::delete;
use serde_json::json;

use super::chosen;
use crate::{
    cli::Which,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(broker: &Broker, which: &Which, yes: bool, json: bool) -> Result<Exit, Error> {
    // By number also what cannot be read may go; naming it is clear enough, "all" is asked about.
    let numbers: Vec<u64> = if which.numbers.is_empty() {
        chosen(broker, which).await?.iter().map(|letter| letter.number).collect()
    } else {
        which.numbers.clone()
    };
    if numbers.is_empty() {
        print::note("no dead letters to remove");
        return Ok(Exit::Done);
    }
    if which.numbers.is_empty() && !yes {
        let count = numbers.len();
        if !print::asked(&format!("remove {count} dead letters for good?")) {
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
