//! `cynodectl dead`: lists, shows, replays and deletes dead letters.

mod remove;
mod replay;
mod show;

use broker::Broker;
use operate::dead::{Letter, LetterList};

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(broker: &Broker, command: cli::Dead, json: bool) -> Result<Exit, Error> {
    match command {
        cli::Dead::Ls { limit, kind, reason } => show::list(broker, limit, kind, reason, json).await,
        cli::Dead::Show { number, raw } => show::one(broker, number, raw, json).await,
        cli::Dead::Replay { selection, sign } => replay::run(broker, &selection, sign.as_deref(), json).await,
        cli::Dead::Drop { selection, yes } => remove::run(broker, &selection, yes, json).await,
    }
}

/// Returns the selected letters: in the given order, or oldest first.
async fn selected(broker: &Broker, selection: &cli::LetterSelection) -> Result<Vec<Letter>, Error> {
    if !selection.numbers.is_empty() {
        let mut letters = Vec::new();
        for number in &selection.numbers {
            letters.push(Letter::read(broker, *number).await?.ok_or(operate::Error::NoSuchLetter(*number))?);
        }
        return Ok(letters);
    }
    let mut letters =
        all(broker, usize::MAX, |letter| selection.reason.is_none_or(|reason| letter.about.reason == reason))
            .await?;
    letters.reverse();
    Ok(letters)
}

/// Returns letters that match, newest first; reports messages that are not readable dead letters.
async fn all(broker: &Broker, limit: usize, matches: impl Fn(&Letter) -> bool) -> Result<Vec<Letter>, Error> {
    let LetterList { letters, unreadable } = operate::dead::list(broker, limit, matches).await?;
    for (number, error) in unreadable {
        print::note(&format!("message {number} is not a readable dead letter: {error}"));
    }
    Ok(letters)
}
