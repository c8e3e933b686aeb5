//! Tokens: random, shown once, kept as hashes, expiring, revocable at once (M116).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rand::TryRngCore;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, Query},
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    clock,
    policy::{Agent, AgentKind, Bound, Caller, Standing},
    store::{
        Store, Write,
        entity::{revision, token},
    },
};

/// What a secret begins with, so that people and scanners know one when they see it.
const PREFIX: &str = "cyn_";
const ADMIN: &str = "admin";
const USER: &str = "user";

/// Who a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Calls tools.
    Agent(Agent),
    /// Administers; calls no tools.
    Admin,
    /// Installs servers of their own; calls no tools.
    User(String),
}

impl Holder {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Agent(agent) => agent.kind().as_str(),
            Self::Admin => ADMIN,
            Self::User(_) => USER,
        }
    }

    fn columns(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Agent(agent) => {
                (agent.bound().map(|bound| bound.user.clone()), agent.bound().map(|bound| bound.task.clone()))
            }
            Self::Admin => (None, None),
            Self::User(user) => (Some(user.clone()), None),
        }
    }

    /// A row that makes no sense is nobody's (M117).
    pub fn read(row: &token::Model) -> Option<Self> {
        let bound = || Some(Bound { user: row.user_id.clone()?, task: row.task_id.clone()? });
        match row.agent.as_str() {
            ADMIN => Some(Self::Admin),
            USER => Some(Self::User(row.user_id.clone()?)),
            kind => Some(Self::Agent(match kind.parse().ok()? {
                AgentKind::ProjectManager if row.user_id.is_none() && row.task_id.is_none() => Agent::Manager,
                AgentKind::ProjectManager => return None,
                AgentKind::ProjectAnalyst => Agent::Analyst(bound()?),
                AgentKind::Sandbox => Agent::Sandbox(bound()?),
            })),
        }
    }
}

/// A new token. This is the only time that the secret is known.
#[derive(Clone)]
pub struct Issued {
    pub row: token::Model,
    pub secret: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("id", &self.row.id).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the system's random generator failed")]
    NoRandomness,
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
}

pub async fn issue(
    store: &Store,
    label: &str,
    holder: &Holder,
    lives: Duration,
    by: &str,
) -> Result<Issued, Error> {
    let write = store.write().await?;
    let issued = issue_in(&write, label, holder, lives, by).await?;
    write.commit().await?;
    Ok(issued)
}

/// As part of something larger, which is committed with it.
pub async fn issue_in(
    write: &Write,
    label: &str,
    holder: &Holder,
    lives: Duration,
    by: &str,
) -> Result<Issued, Error> {
    let secret = new_secret()?;
    let row = insert(write, &secret, label, holder, lives, by).await?;
    Ok(Issued { row, secret })
}

/// Makes a secret that is known elsewhere good, as part of something larger.
pub(crate) async fn insert(
    write: &Write,
    secret: &str,
    label: &str,
    holder: &Holder,
    lives: Duration,
    by: &str,
) -> Result<token::Model, Error> {
    let now = clock::now();
    let lives = i64::try_from(lives.as_micros()).unwrap_or(i64::MAX);
    let (user_id, task_id) = holder.columns();
    let row = token::Model {
        id: Uuid::now_v7().to_string(),
        hash: hash(secret),
        label: label.to_owned(),
        agent: holder.kind().to_owned(),
        user_id,
        task_id,
        created_at: now,
        created_by: by.to_owned(),
        expires_at: now.saturating_add(lives),
        revoked_at: None,
    };
    token::Entity::insert(token::ActiveModel::from(row.clone())).exec(&**write).await?;
    Ok(row)
}

/// Whether there was a token to revoke. From then on it is denied.
pub async fn revoke(store: &Store, id: &str) -> Result<bool, DbErr> {
    let write = store.write().await?;
    let revoked = revoke_in(&write, id).await?;
    write.commit().await?;
    Ok(revoked)
}

/// As part of something larger, which is committed with it.
pub async fn revoke_in(write: &Write, id: &str) -> Result<bool, DbErr> {
    let revoked = token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::value(clock::now()))
        .filter(token::Column::Id.eq(id))
        .filter(token::Column::RevokedAt.is_null())
        .exec(&**write)
        .await?;
    Ok(revoked.rows_affected > 0)
}

/// Newest first.
pub async fn list(store: &Store) -> Result<Vec<token::Model>, DbErr> {
    token::Entity::find().order_by_desc(token::Column::CreatedAt).all(store.read()).await
}

/// What is known about a presented token, and the revision of everything else that decides.
#[derive(Clone, Debug)]
pub struct Presented {
    pub row: Option<token::Model>,
    pub revision: i64,
}

impl Presented {
    pub fn unknown() -> Self {
        Self { row: None, revision: 0 }
    }

    /// For whoever calls tools.
    pub fn standing(&self, now: i64) -> Standing {
        let holder = self.row.as_ref().and_then(|row| Some((row, Holder::read(row)?)));
        let Some((row, Holder::Agent(agent))) = holder else { return Standing::Unknown };
        let caller = Caller { token: row.id.clone(), agent };
        if row.revoked_at.is_some() {
            Standing::Revoked(caller)
        } else if row.expires_at <= now {
            Standing::Expired(caller)
        } else {
            Standing::Valid(caller)
        }
    }

    /// For whoever administers.
    pub fn administrator(&self, now: i64) -> Option<(&token::Model, Holder)> {
        let row = self.row.as_ref().filter(|row| row.revoked_at.is_none() && row.expires_at > now)?;
        match Holder::read(row)? {
            Holder::Agent(_) => None,
            holder => Some((row, holder)),
        }
    }
}

#[derive(FromQueryResult)]
struct Looked {
    #[sea_orm(nested)]
    token: token::Model,
    revision: i64,
}

/// Asked for every call, so that a revocation and a changed setting count at once, on every instance.
pub async fn present(store: &Store, secret: &str) -> Result<Presented, DbErr> {
    let now = Query::select().column(revision::Column::Value).from(revision::Entity).to_owned();
    let found = token::Entity::find()
        .filter(token::Column::Hash.eq(hash(secret)))
        .expr_as(Expr::from(now), "revision")
        .into_model::<Looked>()
        .one(store.read())
        .await?;
    Ok(found.map_or_else(Presented::unknown, |found| Presented {
        row: Some(found.token),
        revision: found.revision,
    }))
}

/// Remembers what was looked up, for as long as it cannot have changed. Where others may change it, nothing is remembered.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<(u64, HashMap<String, Presented>)>);

/// Tokens that are presented at a time; more are looked up again.
const MOST_REMEMBERED: usize = 4096;

impl Remembered {
    pub async fn present(&self, store: &Store, secret: &str) -> Result<Presented, DbErr> {
        let Some(changes) = store.changes() else { return present(store, secret).await };
        let hash = hash(secret);
        {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.0 != changes || known.1.len() > MOST_REMEMBERED {
                *known = (changes, HashMap::new());
            }
            if let Some(presented) = known.1.get(&hash) {
                return Ok(presented.clone());
            }
        }
        let presented = present(store, secret).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What was read while something changed may be from before the change. Strangers are not remembered.
        if store.changes() == Some(changes) && known.0 == changes && presented.row.is_some() {
            known.1.insert(hash, presented.clone());
        }
        Ok(presented)
    }
}

pub fn new_secret() -> Result<String, Error> {
    let mut bytes = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes)))
}

/// A secret has 256 bits of randomness, so a plain hash cannot be turned back.
pub fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
