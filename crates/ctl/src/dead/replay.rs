//! `cynodectl dead replay`.

use std::path::Path;

use broker::Broker;
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
    key: Option<&Path>,
    json: bool,
) -> Result<Exit, Error> {
    let key = key.map(secrets::signing_key::read).transpose()?;
    let letters = selected(broker, selection).await?;
    if letters.is_empty() {
        print::note("no dead letters to replay");
    }
    let mut exit = Exit::Done;
    for letter in letters {
        let replayed = match operate::dead::replay(broker, &letter, key.as_ref()).await {
            Ok(replayed) => replayed,
            // The other letters are still replayed.
            Err(error @ operate::Error::NotReplayed { .. }) => {
                print::note(&error.to_string());
                if !selection.numbers.is_empty() {
                    exit = Exit::Failed;
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let number = letter.number;
        replayed.notes.iter().for_each(|note| print::note(note));
        if replayed.signature_removed {
            print::note(&format!("{number}: the signature is no longer valid; sign again with --sign."));
        }
        if json {
            print::json(
                &json!({ "number": number, "handoff_id": replayed.id, "replay_of": replayed.original_id }),
            );
        } else {
            let id = replayed.id.map_or_else(|| "unreadable handoff".to_owned(), |id| id.to_string());
            print::line(&format!("replayed {number} as {id}"));
        }
    }
    Ok(exit)
}
