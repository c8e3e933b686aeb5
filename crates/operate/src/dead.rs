//! Dead letters: what was given up, and giving it another chance.

mod fate; // what became of its handoff since
mod letter; // one dead letter, read whole
mod replay; // handing it off once more

use std::ops::ControlFlow;

use async_nats::jetstream::stream::DeleteMessageErrorKind;
use broker::{Broker, ReadError};
use subjects::{DeadLetterError, HandoffId, Role, streams};

use crate::Error;
pub use fate::Fate;
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
    let mut listed = Listed::default();
    let looked = broker::newest_under(&broker.jetstream, streams::DEAD, ">", |message| {
        if listed.letters.len() >= limit {
            return ControlFlow::Break(());
        }
        match Letter::of(message) {
            Ok(letter) if fits(&letter) => listed.letters.push(letter),
            Ok(_) => {}
            // Someone else put it there; the others are fine.
            Err(why) => listed.strange.push((message.sequence, why)),
        }
        ControlFlow::Continue(())
    });
    looked.await.map_err(|error| match error {
        ReadError::Stream(..) => Error::NoStreams,
        other => other.into(),
    })?;
    Ok(listed)
}

/// The newest letter of a role's handoff, by its id or by the messages of the queue that it was, among the newest `among`.
pub async fn of(
    broker: &Broker,
    role: Role,
    id: HandoffId,
    queued: Vec<u64>,
    among: usize,
) -> Result<Option<Letter>, Error> {
    let (mut found, mut seen) = (None, 0);
    broker::newest_under(&broker.jetstream, streams::DEAD, ">", |message| {
        seen += 1;
        if let Ok(letter) = Letter::of(message)
            // Each role may have a queue of its own, and numbers of its own in it.
            && letter.about.kind.role() == role
            && (queued.contains(&letter.about.sequence) || letter.handoff_id() == Some(id))
        {
            found = Some(letter);
        }
        if found.is_some() || seen >= among { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    Ok(found)
}

/// Takes a letter out of the stream.
pub async fn delete(broker: &Broker, number: u64) -> Result<(), Error> {
    let stream = broker.jetstream.get_stream_no_info(streams::DEAD).await.map_err(Error::nats)?;
    if broker::message_at(&broker.jetstream, streams::DEAD, number).await?.is_none() {
        return Err(Error::NoSuchLetter(number));
    }
    stream.delete_message(number).await.map_err(|error| match error.kind() {
        DeleteMessageErrorKind::TimedOut => {
            Error::NotTaken(format!("$JS.API.STREAM.MSG.DELETE.{}", streams::DEAD))
        }
        _ => Error::nats(error),
    })?;
    Ok(())
}
