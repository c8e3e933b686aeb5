//! Checks requests before MCP handles them: rate limits, size, headers, JSON shape and token.

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
    HeaderMap, Method, Request, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
    request::Parts,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{error, warn};
use uuid::Uuid;

use super::{
    Front, LiveSettings, fast_path,
    headers::{PROFILE_HEADER, memory_profile, repeated_header, with_forwarded_headers},
    identity::Identity,
    peek::peek,
};
use policy::{Denial, LeaseStanding, MemoryProfile, Standing};

use access::{leases::LEASE_HEADER, tokens::PresentedToken, unauthenticated::Admission};
use audit::{Record, Unavailable};
use listener::{ConnectionAuth, hosts};
use store::clock;

const PARSE_ERROR: i32 = -32700;
const INTERNAL_ERROR: i32 = -32603;
/// Own codes, in the range that JSON-RPC reserves for servers.
const UNAUTHENTICATED: i32 = -32001;
const TOO_FAST: i32 = -32002;

/// The sender of a request.
#[derive(Clone, Debug)]
struct Sender {
    address: IpAddr,
    auth: ConnectionAuth,
    admission: Admission,
}

/// Handles a request to `/mcp`.
pub(super) async fn handle(
    State(front): State<Arc<Front>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(auth): Extension<ConnectionAuth>,
    request: Request<Body>,
) -> Response {
    let live = front.live.load_full();
    let (parts, body) = request.into_parts();
    // Before the body is read or the store is queried: clients without a valid token are limited by address.
    let secret = bearer(&parts.headers);
    let admission = match front.unauthenticated.admit(peer.ip(), secret.as_slice()).await {
        Ok(admission) => admission,
        Err(retry_after) => {
            let sender = Sender { address: peer.ip(), auth, admission: Admission::Unproven };
            let denial = Denial::RateLimited(retry_after.seconds());
            let record = Record::begin(Uuid::now_v7().to_string(), clock::now(), &Standing::Unknown, "");
            return front.refuse(&sender, &Standing::Unknown, Some(record), &denial, &Value::Null).await;
        }
    };
    let sender = Sender { address: peer.ip(), auth, admission };
    if parts.method != Method::POST {
        // GET and DELETE are for sessions, which do not exist; rmcp answers accordingly.
        return pass_to_rmcp(&live, parts, Body::empty()).await;
    }
    let within = live.settings.read_timeout;
    let body = match timeout(within, to_bytes(body, live.settings.max_body_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return front.refuse_unreadable(&live, &sender, &parts, status, "too large").await;
        }
        Err(_) => {
            let status = StatusCode::REQUEST_TIMEOUT;
            return front.refuse_unreadable(&live, &sender, &parts, status, "too slow").await;
        }
    };
    front.post(&live, sender, parts, body).await
}

impl Front {
    async fn post(&self, live: &LiveSettings, sender: Sender, parts: Parts, body: Bytes) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        if let Some(name) = repeated_header(&parts.headers) {
            let why = format!("the header {name} is repeated");
            return self.refuse_unreadable(live, &sender, &parts, bad, &why).await;
        }
        let profile = match memory_profile(&parts.headers) {
            Ok(profile) => profile,
            Err(error) => {
                let why = format!("the header {PROFILE_HEADER} is invalid: {error}");
                return self.refuse_unreadable(live, &sender, &parts, bad, &why).await;
            }
        };
        let envelope = match peek(&body) {
            Ok(envelope) => envelope,
            Err(error) => return self.refuse_unreadable(live, &sender, &parts, bad, &error.0).await,
        };
        let presented = match self.look_up_token(&parts.headers).await {
            Ok(presented) => presented,
            Err(error) => {
                error!(%error, "Store not available; calls are denied.");
                return unavailable_response(&envelope.id);
            }
        };
        let lease = match self.look_up_lease(&presented, &parts.headers).await {
            Ok(lease) => lease,
            Err(error) => {
                error!(%error, "Store not available; calls are denied.");
                return unavailable_response(&envelope.id);
            }
        };
        let profile = match presented.profile(profile, &lease) {
            Ok(profile) => profile,
            // To a worker it is a token that is of no use.
            Err(error) => {
                let status = StatusCode::UNAUTHORIZED;
                return self.refuse_unreadable(live, &sender, &parts, status, &error.to_string()).await;
            }
        };
        let standing = presented.standing(clock::now(), lease, profile);
        let call_id = Uuid::now_v7().to_string();
        let record = || {
            let tool = envelope.tool.as_deref()?;
            Some(Record::begin(call_id.clone(), clock::now(), &standing, tool))
        };
        if let Some(denial) = token_denial(&standing).or_else(|| check_rate(live, &standing)) {
            return self.refuse(&sender, &standing, record(), &denial, &envelope.id).await;
        }
        sender.auth.mark_authenticated();
        if let (Admission::Unproven, Some(secret)) = (sender.admission, bearer(&parts.headers)) {
            self.unauthenticated.mark_valid(sender.address, secret);
        }
        let handled = Arc::new(AtomicBool::new(false));
        let record = record();
        let identity = Identity { standing, revision: presented.revision, call_id, handled: handled.clone() };
        let fast_call =
            || fast_path::parse(&parts.headers, &body, &live.settings.hosts, &self.calls.catalogue.cached());
        let answer = match live.settings.fast_path.then(fast_call).flatten() {
            Some(call) => call.answer(self.calls.clone(), identity).await,
            None => {
                let mut parts = parts;
                parts.extensions.insert(identity);
                pass_to_rmcp(live, parts, Body::from(body)).await
            }
        };
        // Refused for its host or by rmcp: for example a header that contradicts the body, or an unknown
        // protocol version.
        if !handled.load(Ordering::Acquire) && self.record_refusal(record, "protocol").await.is_err() {
            return unavailable_response(&envelope.id);
        }
        answer
    }

    async fn look_up_token(&self, headers: &HeaderMap) -> Result<PresentedToken, sea_orm::DbErr> {
        match bearer(headers) {
            Some(secret) => self.tokens.look_up(&self.store, secret).await,
            None => Ok(PresentedToken::unknown()),
        }
    }

    /// Returns what the lease of a request is worth. Without a known token it is not looked up.
    async fn look_up_lease(
        &self,
        presented: &PresentedToken,
        headers: &HeaderMap,
    ) -> Result<LeaseStanding, sea_orm::DbErr> {
        match headers.get(LEASE_HEADER) {
            Some(_) if presented.row.is_none() => Ok(LeaseStanding::Unknown),
            Some(header) => match header.to_str() {
                Ok(text) => self.leases.look_up(&self.store, Some(text)).await,
                Err(_) => Ok(LeaseStanding::Unknown),
            },
            None => self.leases.look_up(&self.store, None).await,
        }
    }

    /// Refuses a request that cannot be read. It may have been a call, so it is recorded as a denied one.
    async fn refuse_unreadable(
        &self,
        live: &LiveSettings,
        sender: &Sender,
        parts: &Parts,
        status: StatusCode,
        why: &str,
    ) -> Response {
        const MALFORMED: &str = "malformed";
        let presented =
            self.look_up_token(&parts.headers).await.unwrap_or_else(|_| PresentedToken::unknown());
        let lease = self.look_up_lease(&presented, &parts.headers).await;
        let lease = lease.unwrap_or(LeaseStanding::Unknown);
        // The headers may be what cannot be read, and nothing is decided here.
        let standing = presented.standing(clock::now(), lease, MemoryProfile::default());
        let record = Record::begin(Uuid::now_v7().to_string(), clock::now(), &standing, "");
        let recorded = if token_denial(&standing).is_some() {
            self.unauthenticated.record_refusal(sender.address, record, MALFORMED).await
        } else if let Some(denial) = check_rate(live, &standing) {
            return self.refuse(sender, &standing, Some(record), &denial, &Value::Null).await;
        } else {
            self.record_refusal(Some(record), MALFORMED).await
        };
        match recorded {
            Ok(()) => error_response(status, &Value::Null, PARSE_ERROR, why),
            Err(Unavailable) => unavailable_response(&Value::Null),
        }
    }

    /// Denies a request before the decision. Refusals of unauthenticated clients are counted, not recorded
    /// one by one.
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
                self.record_refusal(Some(record), denial.error_type()).await
            }
            Some(record) => {
                self.unauthenticated.record_refusal(sender.address, record, denial.error_type()).await
            }
            None => Ok(()),
        };
        match recorded {
            Ok(()) => denial_response(denial, id),
            Err(Unavailable) => unavailable_response(id),
        }
    }

    /// Records a refused call of a caller with a valid token.
    async fn record_refusal(&self, record: Option<Record>, error_type: &str) -> Result<(), Unavailable> {
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

fn token_denial(standing: &Standing) -> Option<Denial> {
    match standing {
        Standing::Valid(_) => None,
        Standing::Expired(_) => Some(Denial::ExpiredToken),
        Standing::Revoked(_) => Some(Denial::RevokedToken),
        Standing::Unknown => Some(Denial::UnknownToken),
    }
}

/// Counts a request against the caller's rate limit; returns a denial if it is exceeded.
fn check_rate(live: &LiveSettings, standing: &Standing) -> Option<Denial> {
    let caller = standing.caller()?;
    let until = live.rate_limiter(caller).check_key(&caller.token).err()?;
    let wait = until.wait_time_from(DefaultClock::default().now());
    Some(Denial::RateLimited(wait.as_secs().saturating_add(1)))
}

/// Lets rmcp answer a request, unless it is for a host name that `mcp.hosts` does not list. A request without
/// a valid host name is refused by rmcp.
async fn pass_to_rmcp(live: &LiveSettings, parts: Parts, body: Body) -> Response {
    let host = hosts::requested(&parts.uri, &parts.headers);
    if let Some(host) = host.filter(|host| !hosts::is_known(host, &live.settings.hosts)) {
        warn!(%host, "Request refused: mcp.hosts does not list its host name.");
        return (StatusCode::FORBIDDEN, "Forbidden: Host header is not allowed").into_response();
    }
    live.mcp.handle(Request::from_parts(with_forwarded_headers(parts), body)).await.into_response()
}

fn denial_response(denial: &Denial, id: &Value) -> Response {
    let message = denial.to_string();
    match denial {
        Denial::RateLimited(seconds) => {
            let mut response = error_response(StatusCode::TOO_MANY_REQUESTS, id, TOO_FAST, &message);
            response.headers_mut().insert(RETRY_AFTER, (*seconds).into());
            response
        }
        _ => {
            let mut response = error_response(StatusCode::UNAUTHORIZED, id, UNAUTHENTICATED, &message);
            let how = http::HeaderValue::from_static("Bearer realm=\"cynode\", error=\"invalid_token\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
            response
        }
    }
}

fn unavailable_response(id: &Value) -> Response {
    error_response(StatusCode::SERVICE_UNAVAILABLE, id, INTERNAL_ERROR, "not available at the moment")
}

fn error_response(status: StatusCode, id: &Value, code: i32, message: &str) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    (status, axum::Json(body)).into_response()
}
