//! Console sessions: a cookie whose hash is in the store, bound to the token that opened it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderValue, Method, header::COOKIE, request::Parts};
use rand::TryRngCore;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::{Console, Failure, HOME, flash::Flash};
use access::tokens::{self, PresentedToken};
use store::{
    clock,
    entity::{login, token},
};

use crate::{Actor, Error, authentication::mark_authenticated};

const COOKIE_NAME: &str = "cynode_console";

/// A session whose token was valid when the request arrived.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) actor: Actor,
    /// The CSRF token that every form of the session carries.
    pub(super) csrf: String,
    pub(super) flash: Option<Flash>,
    hash: String,
}

impl Session {
    /// Returns the session of a request; `None` if it is unknown or expired, or if its token is no longer
    /// valid.
    pub(super) async fn find(console: &Console, headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let Some(id) = cookie(headers, COOKIE_NAME) else { return Ok(None) };
        let (db, now, hash) = (console.admin.store.read(), clock::now(), tokens::hash(id));
        let Some(login) = login::Entity::find_by_id(&hash).one(db).await? else { return Ok(None) };
        let row = token::Entity::find_by_id(&login.token_id).one(db).await?;
        let actor = Actor::of(&PresentedToken { row, revision: 0 }, now).filter(|_| login.expires_at > now);
        Ok(actor.map(|actor| Self { actor, csrf: login.csrf, flash: Flash::read(headers), hash }))
    }

    /// Opens a session and returns its cookie. Also deletes expired sessions from the store.
    pub(super) async fn open(console: &Console, actor: &Actor) -> Result<HeaderValue, Error> {
        let id = random()?;
        let lifetime = console.admin.settings.session;
        let now = clock::now();
        let row = login::Model {
            hash: tokens::hash(&id),
            token_id: actor.token_id.clone(),
            csrf: random()?,
            created_at: now,
            expires_at: now.saturating_add(i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX)),
        };
        let write = console.admin.store.write().await?;
        login::Entity::delete_many().filter(login::Column::ExpiresAt.lte(now)).exec(&*write).await?;
        login::Entity::insert(login::ActiveModel::from(row)).exec_without_returning(&*write).await?;
        write.commit().await?;
        Ok(set_cookie(console, COOKIE_NAME, &id, lifetime.as_secs()))
    }

    /// Ends the session and returns the header that deletes its cookie.
    pub(super) async fn close(&self, console: &Console) -> Result<HeaderValue, Error> {
        let write = console.admin.store.write().await?;
        login::Entity::delete_by_id(&self.hash).exec(&*write).await?;
        write.commit().await?;
        Ok(set_cookie(console, COOKIE_NAME, "", 0))
    }

    /// Compares hashes, so that the time of the comparison reveals nothing about the token.
    pub(super) fn matches_csrf(&self, csrf: &str) -> bool {
        tokens::hash(csrf) == tokens::hash(&self.csrf)
    }
}

impl FromRequestParts<Arc<Console>> for Session {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Failure> {
        if let Some(session) = Self::find(console, &parts.headers).await? {
            if let Some(id) = id(&parts.headers) {
                mark_authenticated(&console.admin.unauthenticated, &parts.extensions, id);
            }
            return Ok(session);
        }
        let ended = cookie(&parts.headers, COOKIE_NAME).is_some();
        // A POST is not repeated after sign-in: its section is shown instead.
        let path = parts.uri.path();
        let next = match (&parts.method, parts.uri.path_and_query()) {
            (&Method::GET, Some(whole)) => whole.as_str(),
            _ => path.match_indices('/').nth(2).map_or(path, |(at, _)| &path[..at]),
        };
        Err(Failure::SignedOut { next: next.to_owned(), ended })
    }
}

/// Returns the session id in the cookie of a request.
pub(crate) fn id(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE_NAME)
}

pub(super) fn cookie<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == wanted && !value.is_empty()).map(|(_, value)| value)
}

/// Builds a `Set-Cookie` header. `value` must consist of characters that a cookie may contain.
pub(super) fn set_cookie(console: &Console, name: &str, value: &str, seconds: u64) -> HeaderValue {
    let secure = if console.admin.settings.https { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path={HOME}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn random() -> Result<String, Error> {
    let mut bytes = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|_| Error::from(tokens::Error::NoRandomness))?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}
