//! Access tokens: random secrets that are shown once, stored as hashes, expire, and can be revoked at once
//! (M116).

use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use policy::{Agent, Caller, LeaseStanding, MemoryProfile, OnDisconnect, Standing};
use rand::TryRngCore;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, Query},
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::row_cache::RowCache;
use store::{
    Store, WriteTransaction, clock,
    entity::{revision, token},
};

/// Prefix of every secret, so that people and secret scanners recognise one.
const PREFIX: &str = "cyn_";
const ADMIN: &str = "admin";
const USER: &str = "user";

/// The holder of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Calls tools.
    Agent(Agent),
    /// Administers the gateway; calls no tools.
    Admin,
    /// Installs their own upstreams, and is who an API key is for; calls no tools.
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
            Self::Agent(agent) => (
                agent.binding().map(|bound| bound.user.clone()),
                agent.binding().map(|bound| bound.task.clone()),
            ),
            Self::Admin => (None, None),
            Self::User(user) => (Some(user.clone()), None),
        }
    }

    /// Returns the only node that may use the token.
    fn node(&self) -> Option<String> {
        match self {
            Self::Agent(Agent::Node(node)) => Some(node.clone()),
            Self::Agent(_) | Self::Admin | Self::User(_) => None,
        }
    }

    /// Reads the holder from a row; `None` if the row is inconsistent (M117).
    pub fn from_row(row: &token::Model) -> Option<Self> {
        match row.agent.as_str() {
            ADMIN => Some(Self::Admin),
            USER => Some(Self::User(row.user_id.clone()?)),
            kind => {
                let (user, task) = (row.user_id.as_deref(), row.task_id.as_deref());
                Agent::of_token(kind.parse().ok()?, user, task, row.node.as_deref()).map(Self::Agent)
            }
        }
    }
}

/// A new token. The secret is not stored, so it is known only here.
#[derive(Clone)]
pub struct IssuedToken {
    pub row: token::Model,
    pub secret: String,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken").field("id", &self.row.id).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the system's random generator failed")]
    NoRandomness,
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
}

/// What an API key, which is a user's token, decides about the requests made with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Whether requests may name their user.
    pub is_front_end: bool,
    pub on_disconnect: OnDisconnect,
}

/// A token to be issued.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    pub label: &'a str,
    pub holder: &'a Holder,
    /// Of an administrator's token: the user that the administrator is in chats.
    pub chat_user: Option<&'a str>,
    pub profile: Option<&'a MemoryProfile>,
    /// The defaults for a token that is no API key.
    pub key: KeyOptions,
    pub lifetime: Duration,
    /// The author for the row.
    pub by: &'a str,
}

impl<'a> NewToken<'a> {
    /// Returns a token without a memory profile and with the default options.
    pub fn new(label: &'a str, holder: &'a Holder, lifetime: Duration, by: &'a str) -> Self {
        Self { label, holder, chat_user: None, profile: None, key: KeyOptions::default(), lifetime, by }
    }
}

/// Issues a token in its own transaction. `by` is the author for the row.
pub async fn issue(
    store: &Store,
    label: &str,
    holder: &Holder,
    lifetime: Duration,
    by: &str,
) -> Result<IssuedToken, Error> {
    let write = store.write().await?;
    let issued = issue_in(&write, NewToken::new(label, holder, lifetime, by)).await?;
    write.commit().await?;
    Ok(issued)
}

/// Issues a token as part of a transaction of the caller.
pub async fn issue_in(write: &WriteTransaction, new: NewToken<'_>) -> Result<IssuedToken, Error> {
    let secret = new_secret()?;
    let row = insert(write, &secret, new).await?;
    Ok(IssuedToken { row, secret })
}

/// Stores a token with a given secret, as part of a transaction of the caller.
pub async fn insert(
    write: &WriteTransaction,
    secret: &str,
    new: NewToken<'_>,
) -> Result<token::Model, Error> {
    let now = clock::now();
    let lifetime = i64::try_from(new.lifetime.as_micros()).unwrap_or(i64::MAX);
    let (user_id, task_id) = new.holder.columns();
    let chat_user = new.chat_user.filter(|_| *new.holder == Holder::Admin).map(str::to_owned);
    let row = token::Model {
        id: Uuid::now_v7().to_string(),
        hash: hash(secret),
        label: new.label.to_owned(),
        agent: new.holder.kind().to_owned(),
        user_id: user_id.or(chat_user),
        task_id,
        node: new.holder.node(),
        profile: new.profile.map(ToString::to_string),
        is_front_end: new.key.is_front_end,
        on_disconnect: new.key.on_disconnect.to_string(),
        created_at: now,
        created_by: new.by.to_owned(),
        expires_at: now.saturating_add(lifetime),
        revoked_at: None,
    };
    token::Entity::insert(token::ActiveModel::from(row.clone())).exec(&**write).await?;
    Ok(row)
}

/// Revokes a token in its own transaction; returns whether there was a token to revoke.
pub async fn revoke(store: &Store, id: &str) -> Result<bool, DbErr> {
    let write = store.write().await?;
    let revoked = revoke_in(&write, id).await?;
    write.commit().await?;
    Ok(revoked)
}

/// Revokes a token as part of a transaction of the caller; returns whether there was a token to revoke.
pub async fn revoke_in(write: &WriteTransaction, id: &str) -> Result<bool, DbErr> {
    let revoked = token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::value(clock::now()))
        .filter(token::Column::Id.eq(id))
        .filter(token::Column::RevokedAt.is_null())
        .exec(&**write)
        .await?;
    Ok(revoked.rows_affected > 0)
}

/// Lists all tokens, newest first.
pub async fn list(store: &Store) -> Result<Vec<token::Model>, DbErr> {
    token::Entity::find().order_by_desc(token::Column::CreatedAt).all(store.read()).await
}

/// A call names another memory profile than its token.
#[derive(Debug, thiserror::Error)]
#[error("the token is for the memory profile `{0}`, and the call names another")]
pub struct OtherProfile(String);

/// What the store knows about a presented token, and the revision of the catalogue.
#[derive(Clone, Debug)]
pub struct PresentedToken {
    /// `None` if the token is unknown.
    pub row: Option<token::Model>,
    pub revision: i64,
}

impl PresentedToken {
    pub fn unknown() -> Self {
        Self { row: None, revision: 0 }
    }

    /// Returns the memory profile of a call: that of the token if it is bound to one, otherwise that of the
    /// lease, otherwise the one that the call names, otherwise `default`. Fails if the token is bound to
    /// another one than the call names. Whether it fits the lease is part of the decision.
    pub fn profile(
        &self,
        named: Option<MemoryProfile>,
        lease: &LeaseStanding,
    ) -> Result<MemoryProfile, OtherProfile> {
        let Some(own) = self.row.as_ref().and_then(|row| row.profile.as_deref()) else {
            return Ok(lease.profile().cloned().or(named).unwrap_or_default());
        };
        match own.parse() {
            Ok(own) if named.as_ref().is_none_or(|named| *named == own) => Ok(own),
            _ => Err(OtherProfile(own.to_owned())),
        }
    }

    /// Returns the standing of an agent with the lease and the memory profile of its call. Tokens of
    /// administrators and users are unknown here.
    pub fn standing(&self, now: i64, lease: LeaseStanding, profile: MemoryProfile) -> Standing {
        let holder = self.row.as_ref().and_then(|row| Some((row, Holder::from_row(row)?)));
        let Some((row, Holder::Agent(agent))) = holder else { return Standing::Unknown };
        let caller = Caller { token: row.id.clone(), agent, lease, profile };
        Standing::at(caller, now, row.expires_at, row.revoked_at.is_some())
    }

    /// Returns the row and holder of a valid token of an administrator or user; `None` for agents.
    pub fn administrator(&self, now: i64) -> Option<(&token::Model, Holder)> {
        let row = self.row.as_ref().filter(|row| row.revoked_at.is_none() && row.expires_at > now)?;
        match Holder::from_row(row)? {
            Holder::Agent(_) => None,
            holder => Some((row, holder)),
        }
    }
}

#[derive(FromQueryResult)]
struct TokenAndRevision {
    #[sea_orm(nested)]
    token: token::Model,
    revision: i64,
}

/// Looks a secret up in the store. Done for every call, so that revocations and changed settings take effect
/// at once on every instance.
pub async fn look_up(store: &Store, secret: &str) -> Result<PresentedToken, DbErr> {
    let now = Query::select().column(revision::Column::Value).from(revision::Entity).to_owned();
    let found = token::Entity::find()
        .filter(token::Column::Hash.eq(hash(secret)))
        .expr_as(Expr::from(now), "revision")
        .into_model::<TokenAndRevision>()
        .one(store.read())
        .await?;
    Ok(found.map_or_else(PresentedToken::unknown, |found| PresentedToken {
        row: Some(found.token),
        revision: found.revision,
    }))
}

/// Caches looked-up tokens by the hash of their secret.
#[derive(Debug, Default)]
pub struct TokenCache(RowCache<PresentedToken>);

impl TokenCache {
    /// Returns the cached token, or looks it up. Unknown tokens are not cached.
    pub async fn look_up(&self, store: &Store, secret: &str) -> Result<PresentedToken, DbErr> {
        let read = async || {
            let presented = look_up(store, secret).await?;
            Ok(Some(presented).filter(|presented| presented.row.is_some()))
        };
        let found = self.0.get_or_read(store, &hash(secret), read).await?;
        Ok(found.unwrap_or_else(PresentedToken::unknown))
    }
}

/// Generates a secret with 256 random bits.
pub fn new_secret() -> Result<String, Error> {
    let mut bytes = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes)))
}

/// Returns the SHA-256 of a secret in hex. A secret has 256 random bits, so a plain hash cannot be reversed.
pub fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
