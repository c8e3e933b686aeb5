//! Admits an agent: sends its token and lease to the gateway, which decides.

use std::{sync::Arc, time::Duration};

use contract::egress::{self, Begin, Begun, Denial, DenialCode, Limits};
use http::{HeaderMap, StatusCode};
use listener::ConnectionAuth;
use tokio::sync::oneshot;
use tracing::{Instrument, info};
use uuid::Uuid;

use super::{
    Egress,
    call::OpenCall,
    paths::{Endpoint, Target},
    provider::Provider,
    request::Prepared,
    reservation::Expected,
};
use crate::{
    caller::{bearer, header},
    error::ApiError,
    gateway::CallError,
    keys,
};

const LEASE: &str = "cynode-lease";

/// The credentials that an agent presents.
#[derive(Debug)]
pub(super) struct PresentedAgent {
    /// The token itself is not kept.
    pub(super) token_hash: String,
    lease: Option<String>,
}

/// Reads the token and the lease of a request.
pub(super) fn read(headers: &HeaderMap) -> Result<PresentedAgent, ApiError> {
    header(headers, "authorization")?;
    let Some(token) = bearer(headers) else {
        let message =
            "There is no token in the request; agents send theirs as `Authorization: Bearer <token>`.";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "missing_token", message));
    };
    let lease = header(headers, LEASE)?.map(str::to_owned);
    Ok(PresentedAgent { token_hash: keys::hash(token), lease })
}

/// Has the gateway decide about a call, and opens it. If the agent leaves meanwhile, the call is ended.
pub(super) async fn begin(
    egress: &Arc<Egress>,
    agent: &PresentedAgent,
    auth: &ConnectionAuth,
    target: &Target<'_>,
    provider: &Arc<Provider>,
    prepared: &Prepared,
) -> Result<OpenCall, ApiError> {
    // A list of models costs nothing.
    let limits = if target.endpoint == Endpoint::Models { Limits::default() } else { provider.limits() };
    let begin = Begin {
        token_hash: agent.token_hash.clone(),
        lease: agent.lease.clone(),
        provider: provider.name().to_owned(),
        model: prepared.model.clone(),
        limits,
        expected: provider.cost(prepared.expected.reserved()),
        max_seconds: egress.settings.timeout.as_secs().max(1),
    };
    let denial = match decide(egress, begin, provider, prepared.expected).await? {
        Ok(call) => {
            egress.proven.insert(&agent.token_hash);
            auth.mark_authenticated();
            return Ok(call);
        }
        Err(denial) => denial,
    };
    if status(denial.code) == StatusCode::UNAUTHORIZED {
        egress.proven.remove(&agent.token_hash);
    } else {
        egress.proven.insert(&agent.token_hash);
        auth.mark_authenticated();
    }
    info!(provider = provider.name(), reason = denial.code.as_str(), "Call to a provider denied.");
    Err(refuse(denial))
}

/// Has the gateway decide about a call. The work goes on if the request is dropped meanwhile: a call that the
/// gateway has opened is ended then.
async fn decide(
    egress: &Arc<Egress>,
    begin: Begin,
    provider: &Arc<Provider>,
    expected: Expected,
) -> Result<Result<OpenCall, Denial>, ApiError> {
    let (sender, decided) = oneshot::channel();
    let (own, provider) = (egress.clone(), provider.clone());
    let work = async move {
        // By the key, a repeated call to the gateway opens the same call.
        let key = Uuid::now_v7().to_string();
        let begun = own.gateway.call_with_key(&begin, &key).await.map(permitted);
        let begun = begun.map(|begun| begun.map(|call| OpenCall::new(&own, &provider, call, expected)));
        // A call without a receiver ends when it is dropped.
        drop(sender.send(begun));
    };
    drop(egress.reports.spawn(work.in_current_span()));
    let failed = |_| ApiError::unavailable("gateway_unavailable", "The request failed; repeat it.");
    let decided: Result<_, CallError> = decided.await.map_err(failed)?;
    decided.map_err(CallError::into_api_error)
}

/// Returns the call that the gateway has opened, or why it is denied.
fn permitted(begun: Begun) -> Result<egress::OpenCall, Denial> {
    let Begun { call, denial } = begun;
    call.ok_or_else(|| {
        denial.unwrap_or_else(|| Denial {
            code: DenialCode::UnknownToken,
            message: "the gateway did not say why".to_owned(),
            retry_after_seconds: None,
        })
    })
}

/// Returns the error for the agent. 401 means that its token is not valid at all, so that a worker stops
/// pulling; everything else concerns this request only.
fn refuse(denial: Denial) -> ApiError {
    let mut message = denial.message;
    if let Some(first) = message.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let refused = ApiError::new(status(denial.code), denial.code.as_str(), format!("{message}."));
    match denial.retry_after_seconds {
        Some(seconds) => refused.retry_in(Duration::from_secs(seconds)),
        None => refused.not_retryable(),
    }
}

fn status(code: DenialCode) -> StatusCode {
    match code {
        DenialCode::UnknownToken
        | DenialCode::ExpiredToken
        | DenialCode::RevokedToken
        | DenialCode::WrongAgent => StatusCode::UNAUTHORIZED,
        DenialCode::BudgetUsedUp => StatusCode::PAYMENT_REQUIRED,
        DenialCode::BudgetBusy => StatusCode::TOO_MANY_REQUESTS,
        DenialCode::MissingLease
        | DenialCode::UnknownLease
        | DenialCode::EarlyLease
        | DenialCode::ExpiredLease
        | DenialCode::RevokedLease
        | DenialCode::LeaseOfOtherAgent
        | DenialCode::LeaseMismatch
        | DenialCode::ProviderNotAllowed => StatusCode::FORBIDDEN,
    }
}
