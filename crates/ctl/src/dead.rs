//! Dead letters: what was given up, and giving it another chance.

mod remove;
mod replay;
mod show;

use broker::Broker;
use operate::dead::{Letter, Listed};

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(broker: &Broker, command: cli::Dead, json: bool) -> Result<Exit, Error> {
    match command {
        cli::Dead::Ls { limit, kind, reason } => show::list(broker, limit, kind, reason, json).await,
        cli::Dead::Show { number, raw } => show::one(broker, number, raw, json).await,
        cli::Dead::Replay { which, sign } => replay::run(broker, &which, sign.as_deref(), json).await,
        cli::Dead::Drop { which, yes } => remove::run(broker, &which, yes, json).await,
    }
}

/// The letters a command is about, oldest first.
async fn chosen(broker: &Broker, which: &cli::Which) -> Result<Vec<Letter>, Error> {
    if !which.numbers.is_empty() {
        let mut letters = Vec::new();
        for number in &which.numbers {
            letters.push(Letter::read(broker, *number).await?.ok_or(operate::Error::NoSuchLetter(*number))?);
        }
        return Ok(letters);
    }
    let mut letters =
        all(broker, usize::MAX, |letter| which.reason.is_none_or(|reason| letter.about.reason == reason))
            .await?;
    letters.reverse();
    Ok(letters)
}

/// Letters that fit, newest first; what is none of ours is told.
async fn all(broker: &Broker, limit: usize, fits: impl Fn(&Letter) -> bool) -> Result<Vec<Letter>, Error> {
    let Listed { letters, strange } = operate::dead::list(broker, limit, fits).await?;
    for (number, why) in strange {
        print::note(&format!("{number} is no dead letter of ours: {why}"));
    }
    Ok(letters)
}
