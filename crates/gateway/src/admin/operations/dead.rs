use std::{collections::BTreeMap, time::Duration};

use operate::dead::{self, Fate, Letter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::work::in_time;
use crate::{
    admin::{Actor, Admin, Error},
    clock,
};

/// Longer than it takes to give up a publish that nobody answers, so that one hears why.
const PATIENCE: Duration = Duration::from_secs(20);
const AT_A_TIME: usize = 50;
const MOST: usize = 500;

/// A handoff that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetter {
    /// What it is called by.
    pub number: u64,
    pub kind: &'static str,
    /// Why, as an error code.
    pub reason: &'static str,
    /// Why, in words.
    pub message: String,
    pub deliveries: u64,
    /// Who gave it up.
    pub instance: String,
    /// If it can be read.
    pub handoff_id: Option<String>,
    /// What became of the handoff since: `open`, `in work`, `completed`, `cancelled`, `replayed` or `expired`. Only an open one is
    /// replayed.
    pub state: &'static str,
    /// Why it is not replayed.
    pub not_replayed: Option<String>,
    pub published_at: String,
    /// When it was given up, in microseconds since 1970.
    pub died_at: i64,
    /// Of the handoff's message; nothing when it is kept elsewhere because of its size.
    pub bytes: Option<usize>,
}

/// All of one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetterDetails {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Of the handoff's message.
    pub headers: BTreeMap<String, String>,
    /// The handoff, if it can be read.
    pub body: Option<Value>,
    pub body_bytes: usize,
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadFilter {
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this reason, as in `poisoned`.
    pub reason: Option<String>,
    /// At most so many, up to 500; 50 when not given.
    pub limit: Option<usize>,
}

/// A letter that was handed off again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReplayedLetter {
    pub number: u64,
    /// Under which id it went out; nothing when the handoff cannot be read.
    pub handoff_id: Option<String>,
    pub replay_of: Option<String>,
    /// What was changed on the way.
    pub notes: Vec<String>,
}

impl Admin {
    /// The newest first.
    pub async fn list_dead(&self, actor: &Actor, filter: &DeadFilter) -> Result<Vec<DeadLetter>, Error> {
        actor.sees_everything()?;
        let limit = filter.limit.unwrap_or(AT_A_TIME);
        if !(1..=MOST).contains(&limit) {
            return Err(Error::invalid("limit", format!("must be between 1 and {MOST}")));
        }
        let broker = self.broker().await?;
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let fits = |letter: &Letter| {
            is(&filter.kind, letter.about.kind.as_str()) && is(&filter.reason, letter.about.reason.as_str())
        };
        let looking = async {
            let letters = dead::list(&broker, limit, fits).await?.letters;
            let fates = Fate::of_all(&broker, &letters).await?;
            Ok((letters, fates))
        };
        let (letters, fates) = in_time(PATIENCE, looking).await?;
        Ok(letters.iter().zip(fates).map(|(letter, fate)| told(letter, fate)).collect())
    }

    pub async fn get_dead(&self, actor: &Actor, number: u64) -> Result<DeadLetterDetails, Error> {
        actor.sees_everything()?;
        let broker = self.broker().await?;
        let read = async {
            let letter = Letter::read(&broker, number).await?;
            let letter = letter.ok_or(operate::Error::NoSuchLetter(number))?;
            let (body, fate) = (letter.body(&broker).await?, Fate::of(&broker, &letter).await?);
            Ok((letter, body, fate))
        };
        let (letter, body, fate) = in_time(PATIENCE, read).await?;
        Ok(DeadLetterDetails {
            headers: letter.headers().into_iter().collect(),
            body: letter.readable(&body),
            body_bytes: body.len(),
            letter: told(&letter, fate),
        })
    }

    /// Hands it off once more; the letter is gone when that is stored.
    pub async fn replay_dead(&self, actor: &Actor, number: u64) -> Result<ReplayedLetter, Error> {
        const WHAT: &str = "admin.dead.replay";
        self.admin_only(actor, WHAT).await?;
        let broker = self.broker().await?;
        let key = self.nats.as_ref().and_then(|nats| nats.signing_key());
        let replay = async {
            let letter = Letter::read(&broker, number).await?;
            let letter = letter.ok_or(operate::Error::NoSuchLetter(number))?;
            dead::replay(&broker, &letter, key).await
        };
        let about = json!({ "number": number });
        let done = self.outside(actor, WHAT, &about, in_time(PATIENCE, replay)).await?;
        let mut notes = done.notes;
        if done.lost_its_signature {
            notes.push(format!(
                "{number}: its signature no longer fits; set nats.signing_key_file to sign what is replayed."
            ));
        }
        let (handoff_id, replay_of) = (done.id.map(|id| id.to_string()), done.was.map(|id| id.to_string()));
        Ok(ReplayedLetter { number, handoff_id, replay_of, notes })
    }

    /// Takes it away for good.
    pub async fn drop_dead(&self, actor: &Actor, number: u64) -> Result<(), Error> {
        const WHAT: &str = "admin.dead.drop";
        self.admin_only(actor, WHAT).await?;
        let broker = self.broker().await?;
        let about = json!({ "number": number });
        self.outside(actor, WHAT, &about, in_time(PATIENCE, dead::delete(&broker, number))).await
    }
}

fn told(letter: &Letter, fate: Fate) -> DeadLetter {
    let about = &letter.about;
    DeadLetter {
        number: letter.number,
        kind: about.kind.as_str(),
        reason: about.reason.as_str(),
        message: about.message.clone(),
        deliveries: about.deliveries,
        instance: about.instance.clone(),
        handoff_id: letter.handoff_id().map(|id| id.to_string()),
        state: fate.as_str(),
        not_replayed: fate.refusal(),
        published_at: about.published_at.to_string(),
        died_at: clock::micros(letter.died_at.at()),
        bytes: letter.bytes(),
    }
}
