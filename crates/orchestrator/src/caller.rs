//! The caller of a request: an API key and its user.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Extension,
    body::Body,
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use contract::key::Key;
use futures_util::{StreamExt, stream};
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use listener::ConnectionAuth;
use subjects::ScopeId;
use tokio::select;
use tracing::Instrument;

use crate::{
    error::ApiError,
    keys::{self, InUse},
    names, spans,
    state::App,
};

const USER: &str = "x-cynode-user";
const OPEN_WEBUI_USER: &str = "x-openwebui-user-id";

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) key: Arc<Key>,
    /// The key's own user, or the one that a trusted front end names.
    pub(crate) user: ScopeId,
}

/// Lets requests with a valid API key pass, within their limits, and attaches their [`Caller`].
pub(crate) async fn authenticate(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(auth): Extension<ConnectionAuth>,
    mut request: Request,
    next: Next,
) -> Response {
    let (key, in_use) = match valid_key(&app, request.headers(), peer.ip()).await {
        Ok(valid) => valid,
        Err(refused) => return refused.into_response(),
    };
    auth.mark_authenticated();
    let budget = match app.limits.count_request(&key.key_id) {
        Ok(budget) => budget,
        Err(refused) => {
            let mut response = refused.into_response();
            app.limits.no_budget().write(response.headers_mut());
            return response;
        }
    };
    let span = spans::request(&request);
    let mut response = match Caller::of(key, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            select! {
                response = next.run(request).instrument(span.clone()) => until_revoked(response, in_use),
                () = in_use.revoked() => invalid_key().into_response(),
            }
        }
        Err(refused) => refused.into_response(),
    };
    spans::record_status(&span, response.status().as_u16());
    budget.write(response.headers_mut());
    response
}

/// Returns the key of a request. Requests without a valid one are limited by address. A key that was valid
/// before skips this limit, so that other clients at its address cannot lock it out.
async fn valid_key(
    app: &App,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<(Arc<Key>, Arc<InUse>), ApiError> {
    let hash = bearer(headers).map(keys::hash);
    if let Some(hash) = &hash
        && let Some(known) = app.keys.remembered(hash)
    {
        let in_use = app.keys.watch(&known, hash);
        return Ok((known, in_use));
    }
    let is_proven = hash.as_ref().is_some_and(|hash| app.keys.is_proven(hash));
    if !is_proven {
        app.limits.count_unauthenticated(address)?;
    }
    let Some(hash) = hash else {
        let message = "There is no API key in the request; send it as `Authorization: Bearer <key>`.";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message));
    };
    let checked = app.keys.check(hash.clone()).await.map_err(|error| error.into_api_error())?;
    let key = checked.ok_or_else(invalid_key)?;
    if !is_proven {
        app.limits.refund_unauthenticated(address);
    }
    let in_use = app.keys.watch(&key, &hash);
    Ok((key, in_use))
}

fn invalid_key() -> ApiError {
    let message = "The API key is unknown, expired or revoked; ask an operator for another.";
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

/// Breaks the connection of a stream when its key is revoked: a clean end would look like success.
fn until_revoked(response: Response, key: Arc<InUse>) -> Response {
    let content_type = response.headers().get(CONTENT_TYPE);
    if content_type.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| {
        let watched = key.clone();
        let frames = body.into_data_stream().take_until(async move { watched.revoked().await });
        let end = stream::once(async move {
            let broken = || axum::Error::new(std::io::Error::other("the API key was revoked"));
            key.is_revoked().then(|| Err(broken()))
        });
        Body::from_stream(frames.chain(end.filter_map(std::future::ready)))
    })
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !secret.trim().is_empty()).then(|| secret.trim())
}

impl Caller {
    /// Decides for whom a request is made. Only a front end may name a user other than its own.
    fn of(key: Arc<Key>, headers: &HeaderMap) -> Result<Self, ApiError> {
        let named = header(headers, USER)?;
        if named.is_some() && !key.is_front_end {
            let message = format!(
                "This key may not name a user in {USER}: it is not marked as one of a front end. An operator \
                 can issue one that is."
            );
            let refused = ApiError::new(StatusCode::FORBIDDEN, "user_not_allowed", message);
            return Err(ApiError { param: Some(USER.to_owned()), ..refused });
        }
        let named = match named {
            Some(user) => Some((USER, user)),
            None if key.is_front_end => header(headers, OPEN_WEBUI_USER)?.map(|user| (OPEN_WEBUI_USER, user)),
            None => None,
        };
        let user = match named {
            Some((from, user)) => {
                names::refuse_secret(from, user)?;
                user.parse().map_err(|error| {
                    ApiError::invalid(from, format!("{from} does not name a user: {error}."))
                })?
            }
            None => key.user_id.parse().map_err(|error| {
                let message = format!("The user of this key is not valid: {error}; issue another key.");
                ApiError::new(StatusCode::FORBIDDEN, "user_not_allowed", message)
            })?,
        };
        Ok(Self { key, user })
    }
}

/// Returns the value of a header; `None` if it is missing or empty. Refuses one that is repeated or not text.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map(str::trim);
            let text =
                text.map_err(|_| ApiError::invalid(name, format!("The header {name} is not text.")))?;
            Ok(Some(text).filter(|text| !text.is_empty()))
        }
        (Some(_), Some(_)) => Err(ApiError::invalid(name, format!("The header {name} is repeated."))),
    }
}

#[cfg(test)]
mod tests {
    use contract::key::OnDisconnect;
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn caller(is_front_end: bool, headers: &[(&'static str, &'static str)]) -> Result<String, u16> {
        let key = Key {
            key_id: "k".to_owned(),
            user_id: "alice".to_owned(),
            expires_at: String::new(),
            is_front_end,
            on_disconnect: OnDisconnect::Continue,
        };
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let caller = Caller::of(Arc::new(key), &pairs.collect());
        caller.map(|caller| caller.user.to_string()).map_err(|error| error.status.as_u16())
    }

    #[test]
    fn only_a_front_end_names_its_user() {
        assert_eq!(caller(false, &[]), Ok("alice".to_owned()));
        assert_eq!(caller(false, &[(USER, "bob")]), Err(403));
        assert_eq!(caller(false, &[(OPEN_WEBUI_USER, "bob")]), Ok("alice".to_owned()));
        assert_eq!(caller(true, &[(USER, "bob"), (OPEN_WEBUI_USER, "eve")]), Ok("bob".to_owned()));
        assert_eq!(caller(true, &[(OPEN_WEBUI_USER, "eve")]), Ok("eve".to_owned()));
        assert_eq!(caller(true, &[(USER, "")]), Ok("alice".to_owned()));
        assert_eq!(caller(true, &[(USER, " "), (OPEN_WEBUI_USER, "eve")]), Ok("eve".to_owned()));
        assert_eq!(caller(true, &[(USER, ""), (OPEN_WEBUI_USER, "")]), Ok("alice".to_owned()));
        assert_eq!(caller(false, &[(USER, "")]), Ok("alice".to_owned()));
        assert_eq!(caller(true, &[(USER, "not a user")]), Err(400));
        assert_eq!(caller(true, &[(USER, "password:hunter2")]), Err(400));
    }
}
