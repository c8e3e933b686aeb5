//! Calls under a lease, and the calls that renew it and give it back.

use std::{convert::Infallible, sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::{
    ToolContract,
    lease::{Issued, Renew, Revoke},
};
use mcp::{Client, Reply};
use serde::{Serialize, de::DeserializeOwned};
use tracing::{debug, warn};

use crate::HeldLease;

/// Longest wait for a call that renews or revokes a lease, and for one that [`send`] makes.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A lease may expire on its way to the gateway, if it is short and the way is slow.
const MAX_RENEWALS: usize = 3;
/// Bounds of the pause between renewals in the background.
const MIN_RENEWAL_PAUSE: Duration = Duration::from_secs(1);
const MAX_RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// Sends a request under a lease, which is renewed if it is about to expire. A request that the gateway
/// refuses because the lease has expired has not run, so it is sent again under the renewed lease. Without a
/// lease it is sent once.
pub async fn under_lease<T, F: Future<Output = Result<T, mcp::Error>>>(
    client: &Client,
    lease: Option<&HeldLease>,
    send: impl Fn(Option<Arc<str>>) -> F,
) -> Result<T, mcp::Error> {
    let Some(held) = lease else { return send(None).await };
    let mut text = fresh(client, held).await?;
    for _ in 0..MAX_RENEWALS {
        match send(Some(text)).await {
            Err(error) if is_expired(&error) => text = renew(client, held).await?,
            sent => return sent,
        }
    }
    send(Some(text)).await
}

/// Returns whether the gateway denied a call because its lease has expired.
fn is_expired(error: &mcp::Error) -> bool {
    let denied = i64::from(policy::DENIED_CODE);
    matches!(error, mcp::Error::Rejected { code: Some(code), message }
        if *code == denied && *message == policy::Denial::ExpiredLease.to_string())
}

/// Returns the text of a lease, renewed if it is about to expire.
pub async fn fresh(client: &Client, held: &HeldLease) -> Result<Arc<str>, mcp::Error> {
    if !held.is_due() {
        return Ok(held.text());
    }
    let _renewing = held.renewing.lock().await;
    // Another call under the lease may have renewed it.
    if held.is_due() { renew(client, held).await } else { Ok(held.text()) }
}

/// Renews a lease and returns its text. Fails only if the gateway could not be asked: if it refuses, it says
/// why with the next call itself.
pub async fn renew(client: &Client, held: &HeldLease) -> Result<Arc<str>, mcp::Error> {
    let renewed = async {
        let reply = send(client, &Renew::default(), None, Some(&held.text())).await?;
        output::<Renew>(reply)
    };
    match renewed.await {
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

/// Renews a lease at half of its lifetime while it is polled, so that it is valid at any time, also for
/// requests that are not made here. Never returns.
pub async fn keep_renewed(client: &Client, held: &HeldLease) -> Infallible {
    let mut waits = RetryDelays::forever(MIN_RENEWAL_PAUSE, MAX_RENEWAL_PAUSE);
    loop {
        tokio::time::sleep(held.until_half_life()).await;
        let before = held.text();
        {
            let _renewing = held.renewing.lock().await;
            if held.until_half_life().is_zero()
                && let Err(error) = renew(client, held).await
            {
                warn!(
                    lease.id = held.lease.lease_id,
                    error = %Chain(&error),
                    "Lease not renewed; retrying."
                );
            }
        }
        // Also after a refusal: its reason may pass, and the lease can be renewed after it has expired.
        if held.text() == before {
            tokio::time::sleep(waits.next_delay().unwrap_or(MAX_RENEWAL_PAUSE)).await;
        } else {
            waits.reset();
            // A lease with little left is over again at once.
            tokio::time::sleep(MIN_RENEWAL_PAUSE).await;
        }
    }
}

/// Revokes a lease, so that it cannot be used any more. Only for one that was issued for what has ended: it
/// may be in use for something else otherwise. Best effort: a lease ends by itself, if late.
pub async fn give_back(client: &Client, held: &HeldLease) {
    let revoked = async {
        let reply = send(client, &Revoke::default(), None, Some(&held.text())).await?;
        output::<Revoke>(reply)
    };
    if let Err(why) = revoked.await {
        warn!(lease.id = held.lease.lease_id, %why, "Lease not given back; it expires by itself.");
    }
}

/// Why a call of a tool of the contract has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallFailure {
    /// The gateway refused the call or could not be asked.
    #[error("{}", Chain(.0))]
    Gateway(#[from] mcp::Error),
    /// The tool ran and failed.
    #[error("{0}")]
    Tool(String),
}

/// Calls a tool of the contract under a lease, and repeats the call for at most `patience` while the gateway
/// is away. The key makes it take effect once, however often it is sent.
pub async fn call<T: ToolContract<Output: DeserializeOwned> + Serialize>(
    client: &Client,
    input: &T,
    key: &str,
    held: &HeldLease,
    patience: Duration,
) -> Result<T::Output, CallFailure> {
    let arguments = contract::arguments(input);
    let make = || {
        under_lease(client, Some(held), |text| {
            let arguments = arguments.clone();
            async move {
                let (name, lease) = (T::NAME, text.as_deref());
                let call =
                    mcp::Call { name, arguments, idempotency_key: Some(key), traceparent: None, lease };
                client.call(call).await
            }
        })
    };
    let (reply, _) = crate::retry(T::NAME, patience, make, |_, _| true, || std::future::ready(())).await;
    output::<T>(reply?)
}

/// Sends one call of a tool of the contract, with a short time limit.
pub async fn send<T: ToolContract + Serialize>(
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
pub fn output<T: ToolContract<Output: DeserializeOwned>>(reply: Reply) -> Result<T::Output, CallFailure> {
    if reply.is_error {
        return Err(CallFailure::Tool(reply.text));
    }
    let output = reply.structured.ok_or_else(|| CallFailure::Tool("no structured result".to_owned()))?;
    serde_json::from_value(output).map_err(|error| CallFailure::Tool(error.to_string()))
}
