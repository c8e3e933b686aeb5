//! Dead letters: what was given up, and giving it another chance.

mod letter; // one dead letter, read whole
mod replay; // handing it off once more

use broker::Broker;
use subjects::{DeadLetterError, streams};

use crate::Error;
pub use letter::Letter;
pub use replay::{Replayed, replay};

/// Letters, newest first, and what lies among them that is none of ours.
#[derive(Debug, Default)]
pub struct Listed {
    pub letters: Vec<Letter>,
    pub strange: Vec<(u64, DeadLetterError)>,
}

/// Letters that fit, newest first.
pub async fn list(broker: &Broker, limit: usize, fits: impl Fn(&Letter) -> bool) -> Result<Listed, Error> {
    let stream = broker.jetstream.get_stream(streams::DEAD).await.map_err(|_| Error::NoStreams)?;
    let state = &stream.cached_info().state;
    let mut listed = Listed::default();
    if state.messages == 0 {
        return Ok(listed);
    }
    for number in (state.first_sequence..=state.last_sequence).rev() {
        if listed.letters.len() >= limit {
            break;
        }
        match Letter::read(broker, number).await {
            Ok(Some(letter)) if fits(&letter) => listed.letters.push(letter),
            Ok(_) => {}
            // Someone else put it there; the others are fine.
            Err(Error::Letter(number, why)) => listed.strange.push((number, why)),
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// Takes a letter out of the stream.
pub async fn delete(broker: &Broker, number: u64) -> Result<(), Error> {
    let stream = broker.jetstream.get_stream_no_info(streams::DEAD).await.map_err(Error::nats)?;
    if broker::message_at(&broker.jetstream, streams::DEAD, number).await?.is_none() {
        return Err(Error::NoSuchLetter(number));
    }
    stream.delete_message(number).await.map_err(Error::nats)?;
    Ok(())
}
