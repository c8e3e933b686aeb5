use std::io::{BufRead, IsTerminal};

use broker::Broker;
use serde_json::json;

use super::{chosen, delete};
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
    if which.numbers.is_empty() && !yes && !confirmed(numbers.len()) {
        return Err(Error::NotConfirmed);
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

fn confirmed(count: usize) -> bool {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return false;
    }
    print::note(&format!("remove {count} dead letters for good? [y/N]"));
    let mut line = String::new();
    input.lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}
