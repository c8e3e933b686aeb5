//! Dead letters: list, read, replay, drop.

use std::{collections::BTreeMap, time::Duration};

use operate::dead::{self, Letter, LetterState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::work::with_timeout;
use store::clock;

use crate::{Actor, Admin, Error};

/// Longer than the timeout of a publish, so that its error is reported rather than this timeout.
const NATS_TIMEOUT: Duration = Duration::from_secs(20);
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// A dead-lettered handoff.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetter {
    /// Identifies the dead letter.
    pub number: u64,
    pub kind: &'static str,
    /// The reason, as an error code.
    pub reason: &'static str,
    /// The reason as a message.
    pub message: String,
    pub deliveries: u64,
    /// The instance that dead-lettered it.
    pub instance: String,
    /// `null` if the handoff is unreadable.
    pub handoff_id: Option<String>,
    /// Current state of the handoff: `open`, `in work`, `completed`, `cancelled`, `replayed` or `expired`.
    /// Only an open one can be replayed.
    pub state: &'static str,
    /// Why it cannot be replayed.
    pub not_replayed: Option<String>,
    pub published_at: String,
    /// When it was dead-lettered, in microseconds since 1970.
    pub died_at: i64,
    /// Size of the handoff's message; `null` if it is stored separately because of its size.
    pub bytes: Option<usize>,
}

/// A dead letter with its headers and handoff.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetterDetails {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Headers of the handoff's message.
    pub headers: BTreeMap<String, String>,
    /// The handoff; `null` if it is unreadable.
    pub body: Option<Value>,
    pub body_bytes: usize,
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadFilter {
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this reason, for example `poisoned`.
    pub reason: Option<String>,
    /// Maximum number of letters, up to 500; default 50.
    pub limit: Option<usize>,
}

/// A replayed dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReplayedLetter {
    pub number: u64,
    /// Id under which it was published; `null` if the handoff is unreadable.
    pub handoff_id: Option<String>,
    pub replay_of: Option<String>,
    /// What the replay changed in the handoff.
    pub notes: Vec<String>,
}

impl Admin {
    /// Lists dead letters, newest first.
    pub async fn list_dead(&self, actor: &Actor, filter: &DeadFilter) -> Result<Vec<DeadLetter>, Error> {
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
        Ok(letters.iter().zip(states).map(|(letter, state)| DeadLetter::new(letter, state)).collect())
    }

    pub async fn get_dead(&self, actor: &Actor, number: u64) -> Result<DeadLetterDetails, Error> {
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
            letter: DeadLetter::new(&letter, state),
        })
    }

    /// Publishes the handoff again, signed with the configured key. The letter is deleted once the handoff is
    /// stored.
    pub async fn replay_dead(&self, actor: &Actor, number: u64) -> Result<ReplayedLetter, Error> {
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
    pub async fn drop_dead(&self, actor: &Actor, number: u64) -> Result<(), Error> {
        const WHAT: &str = "admin.dead.drop";
        self.require_admin(actor, WHAT).await?;
        let broker = self.broker().await?;
        let about = json!({ "number": number });
        self.run_external(actor, WHAT, &about, with_timeout(NATS_TIMEOUT, dead::delete(&broker, number)))
            .await
    }
}

impl DeadLetter {
    fn new(letter: &Letter, state: LetterState) -> Self {
        let about = &letter.about;
        Self {
            number: letter.number,
            kind: about.kind.as_str(),
            reason: about.reason.as_str(),
            message: about.message.clone(),
            deliveries: about.deliveries,
            instance: about.instance.clone(),
            handoff_id: letter.handoff_id().map(|id| id.to_string()),
            state: state.as_str(),
            not_replayed: state.replay_refusal(),
            published_at: about.published_at.to_string(),
            died_at: clock::micros(letter.died_at.at()),
            bytes: letter.bytes(),
        }
    }
}
