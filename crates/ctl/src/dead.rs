//! Dead letters: what was given up, and giving it another chance.

mod letter; // one dead letter, read whole
mod remove;
mod replay;
mod show;

use broker::Broker;
use subjects::streams;

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

use letter::Letter;

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
            letters.push(Letter::read(broker, *number).await?.ok_or(Error::NoSuchLetter(*number))?);
        }
        return Ok(letters);
    }
    let mut letters =
        all(broker, usize::MAX, |letter| which.reason.is_none_or(|reason| letter.about.reason == reason))
            .await?;
    letters.reverse();
    Ok(letters)
}

/// Letters that fit, newest first.
async fn all(broker: &Broker, limit: usize, fits: impl Fn(&Letter) -> bool) -> Result<Vec<Letter>, Error> {
    let stream = broker.jetstream.get_stream(streams::DEAD).await.map_err(|_| Error::NoStreams)?;
    let state = &stream.cached_info().state;
    let mut letters = Vec::new();
    if state.messages == 0 {
        return Ok(letters);
    }
    for number in (state.first_sequence..=state.last_sequence).rev() {
        if letters.len() >= limit {
            break;
        }
        match Letter::read(broker, number).await {
            Ok(Some(letter)) if fits(&letter) => letters.push(letter),
            Ok(_) => {}
            // Someone else put it there; the others are fine.
            Err(Error::Letter(number, why)) => {
                print::note(&format!("{number} is no dead letter of ours: {why}"))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(letters)
}

/// Takes a letter out of the stream.
async fn delete(broker: &Broker, number: u64) -> Result<(), Error> {
    let stream = broker.jetstream.get_stream_no_info(streams::DEAD).await.map_err(Error::nats)?;
    if broker::message_at(&broker.jetstream, streams::DEAD, number).await?.is_none() {
        return Err(Error::NoSuchLetter(number));
    }
    stream.delete_message(number).await.map_err(Error::nats)?;
    Ok(())
}
