//! Dead letters: listed, read, replayed and deleted.

mod letter;
mod replay;
mod state;

use std::ops::ControlFlow;

use async_nats::jetstream::stream::DeleteMessageErrorKind;
use broker::{Broker, ReadError};
use subjects::{DeadLetterError, HandoffId, Role, streams};

use crate::Error;
pub use letter::Letter;
pub use replay::{Replayed, replay};
pub use state::LetterState;

/// Dead letters, newest first, and messages of the stream that are not readable dead letters.
#[derive(Debug, Default)]
pub struct LetterList {
    pub letters: Vec<Letter>,
    /// Sequence and error of each.
    pub unreadable: Vec<(u64, DeadLetterError)>,
}

/// Returns up to `limit` dead letters that match, newest first.
pub async fn list(
    broker: &Broker,
    limit: usize,
    matches: impl Fn(&Letter) -> bool,
) -> Result<LetterList, Error> {
    let mut listed = LetterList::default();
    let scan = broker::scan_newest_first(&broker.jetstream, streams::DEAD, ">", |message| {
        if listed.letters.len() >= limit {
            return ControlFlow::Break(());
        }
        match Letter::from_message(message) {
            Ok(letter) if matches(&letter) => listed.letters.push(letter),
            Ok(_) => {}
            // Another program stored it; the other letters are still listed.
            Err(why) => listed.unreadable.push((message.sequence, why)),
        }
        ControlFlow::Continue(())
    });
    scan.await.map_err(|error| match error {
        ReadError::Stream(..) => Error::NoStreams,
        other => other.into(),
    })?;
    Ok(listed)
}

/// Returns the newest dead letter of a handoff, found by its id or by its queue messages, among the newest
/// `among` letters.
pub async fn find(
    broker: &Broker,
    role: Role,
    id: HandoffId,
    queued: Vec<u64>,
    among: usize,
) -> Result<Option<Letter>, Error> {
    let (mut found, mut seen) = (None, 0);
    broker::scan_newest_first(&broker.jetstream, streams::DEAD, ">", |message| {
        seen += 1;
        if let Ok(letter) = Letter::from_message(message)
            // Each role may have its own queue, with its own sequences.
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

/// Deletes a dead letter from the stream.
pub async fn delete(broker: &Broker, number: u64) -> Result<(), Error> {
    let stream = broker.jetstream.get_stream_no_info(streams::DEAD).await.map_err(Error::nats)?;
    if broker::message_at(&broker.jetstream, streams::DEAD, number).await?.is_none() {
        return Err(Error::NoSuchLetter(number));
    }
    stream.delete_message(number).await.map_err(|error| match error.kind() {
        DeleteMessageErrorKind::TimedOut => {
            Error::NoResponders(format!("$JS.API.STREAM.MSG.DELETE.{}", streams::DEAD))
        }
        _ => Error::nats(error),
    })?;
    Ok(())
}
