//! Dead letters: list, read, replay, drop.

use std::time::Duration;

use api::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter};
use operate::dead::{self, Letter, LetterState};
use serde_json::json;

use super::work::with_timeout;
use store::clock;

use crate::{Actor, Admin, Error};

/// Exceeds the timeout of a publish, so that the error of the publish is reported instead of this timeout.
const NATS_TIMEOUT: Duration = Duration::from_secs(20);
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

impl Admin {
    /// Lists dead letters, newest first.
    pub(crate) async fn list_dead(
        &self,
        actor: &Actor,
        filter: &DeadFilter,
    ) -> Result<Vec<DeadLetter>, Error> {
        actor.ensure_admin()?;
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Error::invalid("limit", format!("must be between 1 and {MAX_LIMIT}")));
        }
        let broker = self.broker().await?;
        let equals =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let fits = |letter: &Letter| {
            equals(&filter.kind, letter.about.kind.as_str())
                && equals(&filter.reason, letter.about.reason.as_str())
        };
        let list = async {
            let letters = dead::list(&broker, limit, fits).await?.letters;
            let states = LetterState::read_all(&broker, &letters).await?;
            Ok((letters, states))
        };
        let (letters, states) = with_timeout(NATS_TIMEOUT, list).await?;
        Ok(letters.iter().zip(states).map(|(letter, state)| describe(letter, state)).collect())
    }

    pub(crate) async fn get_dead(&self, actor: &Actor, number: u64) -> Result<DeadLetterDetails, Error> {
        actor.ensure_admin()?;
        let broker = self.broker().await?;
        let read = async {
            let letter = Letter::read(&broker, number).await?;
            let letter = letter.ok_or(operate::Error::NoSuchLetter(number))?;
            let (body, state) = (letter.body(&broker).await?, LetterState::read(&broker, &letter).await?);
            Ok((letter, body, state))
        };
        let (letter, body, state) = with_timeout(NATS_TIMEOUT, read).await?;
        Ok(DeadLetterDetails {
            headers: letter.headers().into_iter().collect(),
            body: letter.readable(&body),
            body_bytes: body.len(),
            letter: describe(&letter, state),
        })
    }

    /// Publishes the handoff again, signed with the configured key. The letter is deleted once the handoff is
    /// stored.
    pub(crate) async fn replay_dead(&self, actor: &Actor, number: u64) -> Result<ReplayedLetter, Error> {
        const WHAT: &str = "admin.dead.replay";
        self.require_admin(actor, WHAT).await?;
        let broker = self.broker().await?;
        let key = self.signing_key.as_ref();
        let replay = async {
            let letter = Letter::read(&broker, number).await?;
            let letter = letter.ok_or(operate::Error::NoSuchLetter(number))?;
            dead::replay(&broker, &letter, key).await
        };
        let about = json!({ "number": number });
        let done = self.run_external(actor, WHAT, &about, with_timeout(NATS_TIMEOUT, replay)).await?;
        let mut notes = done.notes;
        if done.signature_removed {
            notes.push(format!(
                "{number}: its signature is no longer valid; set nats.signing_key_file to sign replayed \
                 handoffs."
            ));
        }
        let (handoff_id, replay_of) =
            (done.id.map(|id| id.to_string()), done.original_id.map(|id| id.to_string()));
        Ok(ReplayedLetter { number, handoff_id, replay_of, notes })
    }

    /// Deletes a dead letter permanently.
    pub(crate) async fn drop_dead(&self, actor: &Actor, number: u64) -> Result<(), Error> {
        const WHAT: &str = "admin.dead.drop";
        self.require_admin(actor, WHAT).await?;
        let broker = self.broker().await?;
        let about = json!({ "number": number });
        self.run_external(actor, WHAT, &about, with_timeout(NATS_TIMEOUT, dead::delete(&broker, number)))
            .await
    }
}

fn describe(letter: &Letter, state: LetterState) -> DeadLetter {
    let about = &letter.about;
    DeadLetter {
        number: letter.number,
        kind: about.kind.to_string(),
        reason: about.reason.to_string(),
        message: about.message.clone(),
        deliveries: about.deliveries,
        instance: about.instance.clone(),
        handoff_id: letter.handoff_id().map(|id| id.to_string()),
        state: state.as_str().to_owned(),
        not_replayed: state.replay_refusal(),
        published_at: about.published_at.to_string(),
        died_at: clock::micros(letter.died_at.at()),
        bytes: letter.bytes(),
    }
}
