use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Extension,
    body::{Body, to_bytes},
    extract::{ConnectInfo, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use governor::clock::{Clock, DefaultClock};
use http::{
    HeaderMap, HeaderName, Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE},
    request::Parts,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::error;
use uuid::Uuid;

use super::{Front, Present, glimpse::glimpse, plain};
use crate::{
    audit::{Record, Unavailable},
    clock,
    policy::{Denial, Standing},
    serve::Trust,
    strangers::Admitted,
    tokens::Presented,
};

const PARSE_ERROR: i32 = -32700;
const INTERNAL_ERROR: i32 = -32603;
/// Ours, in the range that JSON-RPC leaves to servers.
const UNAUTHENTICATED: i32 = -32001;
const TOO_FAST: i32 = -32002;
pub(super) const MCP_HEADERS: &str = "mcp-";
/// What MCP itself needs. Everything else a caller sends is left outside: cookies, forwarded identities, sessions.
const PASSED_ON: [HeaderName; 4] = [HOST, ORIGIN, ACCEPT, CONTENT_TYPE];
pub(super) const NOT_PASSED_ON: [&str; 1] = ["mcp-session-id"];

/// Who calls, for the handler of the call.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) standing: Standing,
    pub(super) revision: i64,
    pub(super) call_id: String,
    /// Set when the handler has the call and will record it.
    reached: Arc<AtomicBool>,
}

impl Identity {
    pub(super) fn take_over(&self) {
        self.reached.store(true, Ordering::Release);
    }
}

/// Where a request came from.
#[derive(Clone, Debug)]
struct Sender {
    address: IpAddr,
    trust: Trust,
    admitted: Admitted,
}

pub(super) async fn enter(
    State(front): State<Arc<Front>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(trust): Extension<Trust>,
    request: Request<Body>,
) -> Response {
    let present = front.present.load_full();
    let (parts, body) = request.into_parts();
    // Before anything is read or looked up: whoever has no good token has a pace by address.
    let secret = bearer(&parts.headers);
    let admitted = match front.strangers.admit(peer.ip(), secret.as_slice()).await {
        Ok(admitted) => admitted,
        Err(wait) => {
            let sender = Sender { address: peer.ip(), trust, admitted: Admitted::Unproven };
            let denial = Denial::TooFast(wait.seconds());
            let record = Record::begin(Uuid::now_v7().to_string(), clock::now(), &Standing::Unknown, "");
            return front.refuse(&sender, &Standing::Unknown, Some(record), &denial, &Value::Null).await;
        }
    };
    let sender = Sender { address: peer.ip(), trust, admitted };
    if parts.method != Method::POST {
        // Without sessions there is nothing to get and nothing to delete; this says so.
        return present
            .mcp
            .handle(Request::from_parts(passed_on(parts), Body::empty()))
            .await
            .into_response();
    }
    let within = present.settings.read_timeout;
    let body = match timeout(within, to_bytes(body, present.settings.max_body_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return front.unreadable(&present, &sender, &parts, status, "too large").await;
        }
        Err(_) => {
            let status = StatusCode::REQUEST_TIMEOUT;
            return front.unreadable(&present, &sender, &parts, status, "too slow").await;
        }
    };
    front.post(&present, sender, parts, body).await
}

impl Front {
    async fn post(&self, present: &Present, sender: Sender, parts: Parts, body: Bytes) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        if let Some(name) = repeated(&parts.headers) {
            let why = format!("the header {name} stands twice");
            return self.unreadable(present, &sender, &parts, bad, &why).await;
        }
        let seen = match glimpse(&body) {
            Ok(seen) => seen,
            Err(error) => return self.unreadable(present, &sender, &parts, bad, &error.0).await,
        };
        let presented = match self.presented(&parts.headers).await {
            Ok(presented) => presented,
            Err(error) => {
                error!(%error, "Store not available; calls are denied.");
                return refused(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &seen.id,
                    INTERNAL_ERROR,
                    "not available at the moment",
                );
            }
        };
        let standing = presented.standing(clock::now());
        let call_id = Uuid::now_v7().to_string();
        let record = || {
            let tool = seen.call.as_deref()?;
            Some(Record::begin(call_id.clone(), clock::now(), &standing, tool))
        };
        if let Some(denial) = bad_token(&standing).or_else(|| too_fast(present, &standing)) {
            return self.refuse(&sender, &standing, record(), &denial, &seen.id).await;
        }
        sender.trust.gain();
        if let (Admitted::Unproven, Some(secret)) = (sender.admitted, bearer(&parts.headers)) {
            self.strangers.proven(sender.address, secret);
        }
        let reached = Arc::new(AtomicBool::new(false));
        let record = record();
        let identity = Identity { standing, revision: presented.revision, call_id, reached: reached.clone() };
        let plain = plain::read(&parts.headers, &body, &present.settings.hosts, &self.calls.shelf.last());
        let answer = match plain {
            Some(plain) => plain.answer(self.calls.clone(), identity).await,
            None => {
                let mut parts = passed_on(parts);
                parts.extensions.insert(identity);
                present.mcp.handle(Request::from_parts(parts, Body::from(body))).await.into_response()
            }
        };
        // Refused by the protocol itself: a header that says another thing than the body, a version nobody knows.
        if !reached.load(Ordering::Acquire) && self.recorded(record, "protocol").await.is_err() {
            return unavailable(&seen.id);
        }
        answer
    }

    async fn presented(&self, headers: &HeaderMap) -> Result<Presented, sea_orm::DbErr> {
        match bearer(headers) {
            Some(secret) => self.remembered.present(&self.store, secret).await,
            None => Ok(Presented::unknown()),
        }
    }

    /// A request that cannot be read may have been a call, so it is recorded as one that was denied.
    async fn unreadable(
        &self,
        present: &Present,
        sender: &Sender,
        parts: &Parts,
        status: StatusCode,
        why: &str,
    ) -> Response {
        const MALFORMED: &str = "malformed";
        let presented = self.presented(&parts.headers).await.unwrap_or_else(|_| Presented::unknown());
        let standing = presented.standing(clock::now());
        let record = Record::begin(Uuid::now_v7().to_string(), clock::now(), &standing, "");
        let recorded = if bad_token(&standing).is_some() {
            self.strangers.refused(sender.address, record, MALFORMED).await
        } else if let Some(denial) = too_fast(present, &standing) {
            return self.refuse(sender, &standing, Some(record), &denial, &Value::Null).await;
        } else {
            self.recorded(Some(record), MALFORMED).await
        };
        match recorded {
            Ok(()) => refused(status, &Value::Null, PARSE_ERROR, why),
            Err(Unavailable) => unavailable(&Value::Null),
        }
    }

    /// Denies a request before it comes to a decision. What strangers do is counted, not written one by one.
    async fn refuse(
        &self,
        sender: &Sender,
        standing: &Standing,
        record: Option<Record>,
        denial: &Denial,
        id: &Value,
    ) -> Response {
        let recorded = match record {
            Some(record) if matches!(standing, Standing::Valid(_)) => {
                self.recorded(Some(record), denial.error_type()).await
            }
            Some(record) => self.strangers.refused(sender.address, record, denial.error_type()).await,
            None => Ok(()),
        };
        match recorded {
            Ok(()) => denied(denial, id),
            Err(Unavailable) => unavailable(id),
        }
    }

    async fn recorded(&self, record: Option<Record>, error_type: &str) -> Result<(), Unavailable> {
        match record {
            Some(record) => self.calls.refuse(record, error_type).await,
            None => Ok(()),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn bad_token(standing: &Standing) -> Option<Denial> {
    match standing {
        Standing::Valid(_) => None,
        Standing::Expired(_) => Some(Denial::ExpiredToken),
        Standing::Revoked(_) => Some(Denial::RevokedToken),
        Standing::Unknown => Some(Denial::UnknownToken),
    }
}

/// One caller cannot use up what is there for all.
fn too_fast(present: &Present, standing: &Standing) -> Option<Denial> {
    let until = present.pace.check_key(&standing.caller()?.token).err()?;
    let wait = until.wait_time_from(DefaultClock::default().now());
    Some(Denial::TooFast(wait.as_secs().saturating_add(1)))
}

/// A header that stands twice may be read one way here and another way elsewhere.
fn repeated(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        let matters =
            *name == AUTHORIZATION || PASSED_ON.contains(name) || name.as_str().starts_with(MCP_HEADERS);
        // Several `Accept` lines are one list.
        matters && **name != ACCEPT && headers.get_all(*name).iter().count() > 1
    })
}

fn passed_on(mut parts: Parts) -> Parts {
    let mut headers = HeaderMap::new();
    for (name, value) in &parts.headers {
        let is_ours = name.as_str().starts_with(MCP_HEADERS) && !NOT_PASSED_ON.contains(&name.as_str());
        if is_ours || PASSED_ON.contains(name) {
            headers.append(name, value.clone());
        }
    }
    parts.headers = headers;
    parts
}

fn denied(denial: &Denial, id: &Value) -> Response {
    let message = denial.to_string();
    match denial {
        Denial::TooFast(seconds) => {
            let mut response = refused(StatusCode::TOO_MANY_REQUESTS, id, TOO_FAST, &message);
            response.headers_mut().insert(RETRY_AFTER, (*seconds).into());
            response
        }
        _ => {
            let mut response = refused(StatusCode::UNAUTHORIZED, id, UNAUTHENTICATED, &message);
            let how = http::HeaderValue::from_static("Bearer realm=\"cynode\", error=\"invalid_token\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
            response
        }
    }
}

fn unavailable(id: &Value) -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, id, INTERNAL_ERROR, "not available at the moment")
}

fn refused(status: StatusCode, id: &Value, code: i32, message: &str) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    (status, axum::Json(body)).into_response()
}
