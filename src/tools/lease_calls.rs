//! Calls under the lease of a handoff, and the calls that renew it, give it back and issue another one.

use std::{future::ready, sync::Arc, time::Duration};

use broker::Chain;
use contract::{
    ToolContract,
    lease::{self, Issued},
};
use mcp::{Client, Reply};
use serde::{Serialize, de::DeserializeOwned};
use tracing::debug;

use super::{NoListener, Tools};
use crate::lease::HeldLease;

/// Longest wait for a call that issues, renews or revokes a lease.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A lease may expire on its way to the gateway, if it is short and the way is slow.
const MAX_RENEWALS: usize = 3;

/// Sends a request under a lease, which is renewed if it is about to expire. A request that the gateway
/// refuses because the lease has expired has not run, so it is sent again under the renewed lease.
pub(super) async fn under_lease<T, F: Future<Output = Result<T, mcp::Error>>>(
    client: &Client,
    lease: Option<&HeldLease>,
    send: impl Fn(Option<Arc<str>>) -> F,
) -> Result<T, mcp::Error> {
    let Some(held) = lease else { return send(None).await };
    let mut text = fresh(client, held).await?;
    for _ in 0..MAX_RENEWALS {
        match send(Some(text)).await {
            Err(mcp::Error::Rejected { message, .. })
                if message == policy::Denial::ExpiredLease.to_string() =>
            {
                text = renew(client, held).await?;
            }
            sent => return sent,
        }
    }
    send(Some(text)).await
}

/// Returns the text of a lease, renewed if it is about to expire.
async fn fresh(client: &Client, held: &HeldLease) -> Result<Arc<str>, mcp::Error> {
    if !held.is_due() {
        return Ok(held.text());
    }
    let _renewing = held.renewing.lock().await;
    // Another call of the handoff may have renewed it.
    if held.is_due() { renew(client, held).await } else { Ok(held.text()) }
}

/// Renews a lease. Fails only if the gateway could not be asked: if it refuses, it says why with the call
/// itself.
async fn renew(client: &Client, held: &HeldLease) -> Result<Arc<str>, mcp::Error> {
    match call(client, &lease::Renew {}, None, Some(&held.text())).await {
        Ok(Issued { lease, .. }) => held.replace(&lease),
        // Unlike a tool that takes long, this is an outage: it is waited for.
        Err(CallFailure::Gateway(mcp::Error::TimedOut)) => return Err(not_renewed()),
        Err(CallFailure::Gateway(error)) if error.is_transient() => return Err(error),
        Err(why) => debug!(lease.id = held.lease.lease_id, %why, "Lease not renewed."),
    }
    Ok(held.text())
}

fn not_renewed() -> mcp::Error {
    mcp::Error::Unavailable("the lease was not renewed in time".into())
}

impl Tools {
    /// Revokes the lease of an answered handoff, so that it is of no use to anybody. A lease that was not
    /// issued for one handoff may be in use for another.
    pub(crate) async fn give_back(&self, held: &HeldLease) {
        let Some(client) = self.client.as_ref().filter(|_| held.lease.handoff_id.is_some()) else { return };
        if let Err(why) = call(client, &lease::Revoke::default(), None, Some(&held.text())).await {
            debug!(lease.id = held.lease.lease_id, %why, "Lease not given back; it ends by itself.");
        }
    }

    /// Returns the text of a lease, renewed if it is about to expire, or if it was refused because it has.
    pub(crate) async fn fresh_lease(&self, held: &HeldLease, is_expired: bool) -> Result<Arc<str>, String> {
        let Some(client) = self.client.as_ref() else { return Ok(held.text()) };
        let text = if is_expired { renew(client, held).await } else { fresh(client, held).await };
        text.map_err(|error| Chain(&error).to_string())
    }

    /// Issues a lease for an analyst under the lease of the handoff. A gateway that is away is waited for, as
    /// with any call. The error says why there is none.
    pub(crate) async fn issue_lease(
        &self,
        wanted: &lease::Issue,
        key: &str,
        held: Option<&HeldLease>,
    ) -> Result<Issued, String> {
        let client = self.client.as_ref().ok_or("no gateway is configured")?;
        let make =
            || {
                under_lease(client, held, |text| async move {
                    send(client, wanted, Some(key), text.as_deref()).await
                })
            };
        let name = lease::Issue::NAME;
        let called = self.call_with_retries(name, self.patience, make, &NoListener, || ready(()));
        let (reply, _) = called.await.map_err(|error| error.to_string())?;
        output::<lease::Issue>(reply).map_err(|why| why.to_string())
    }
}

/// Why a call about a lease has no result.
#[derive(Debug, thiserror::Error)]
enum CallFailure {
    #[error("{}", Chain(.0))]
    Gateway(mcp::Error),
    #[error("{0}")]
    Tool(String),
}

/// Calls a tool of the contract on the worker's own account.
async fn call<T: ToolContract<Output: DeserializeOwned> + Serialize>(
    client: &Client,
    input: &T,
    key: Option<&str>,
    lease: Option<&str>,
) -> Result<T::Output, CallFailure> {
    let reply = send(client, input, key, lease).await.map_err(CallFailure::Gateway)?;
    output::<T>(reply)
}

async fn send<T: ToolContract + Serialize>(
    client: &Client,
    input: &T,
    key: Option<&str>,
    lease: Option<&str>,
) -> Result<Reply, mcp::Error> {
    let arguments = contract::arguments(input);
    let call = mcp::Call { name: T::NAME, arguments, idempotency_key: key, traceparent: None, lease };
    tokio::time::timeout(TIMEOUT, client.call(call)).await.unwrap_or(Err(mcp::Error::TimedOut))
}

/// Returns the result of a call of this tool.
fn output<T: ToolContract<Output: DeserializeOwned>>(reply: Reply) -> Result<T::Output, CallFailure> {
    if reply.is_error {
        return Err(CallFailure::Tool(reply.text));
    }
    let output = reply.structured.ok_or_else(|| CallFailure::Tool("no structured result".to_owned()))?;
    serde_json::from_value(output).map_err(|error| CallFailure::Tool(error.to_string()))
}
