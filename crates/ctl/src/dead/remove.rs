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
    let letters = chosen(broker, which).await?;
    if letters.is_empty() {
        print::note("no dead letters to remove");
        return Ok(Exit::Done);
    }
    // Naming single letters is clear enough; "all" is asked about.
    if which.numbers.is_empty() && !yes && !confirmed(letters.len()) {
        return Err(Error::NotConfirmed);
    }
    for letter in &letters {
        delete(broker, letter.number).await?;
        if json {
            print::json(&json!({ "number": letter.number, "dropped": true }));
        } else {
            print::line(&format!("dropped {}", letter.number));
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
