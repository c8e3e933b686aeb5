//! Renews a lease at half of its lifetime, and tells the gateway how long its audit is.

use std::{convert::Infallible, sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::lease::{Issued, Renew};
use leased::CallFailure;
use policy::{Denial, Lease};
use subjects::edge::Record;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{Session, validity::Validity};

const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Renews the lease of a session while it is polled. Never returns.
pub(crate) async fn keep_renewed(session: &Session) -> Infallible {
    let mut waits = RetryDelays::forever(MIN_PAUSE, MAX_PAUSE);
    loop {
        let validity = session.validity();
        sleep(validity.until_renewal()).await;
        if session.is_revoked() || session.file.closed().is_some() {
            // Ended for good.
            return std::future::pending().await;
        }
        match renew(session, &validity).await {
            Ok(()) => waits.reset(),
            Err(why) => {
                let left = validity.remaining();
                warn!(lease.id = session.lease_id, why, ?left, "Lease not renewed; retrying.");
                // The last tries come before the lease ends.
                let wait = waits.next_delay().unwrap_or(MAX_PAUSE);
                sleep(wait.min((left / 2).max(MIN_PAUSE))).await;
            }
        }
    }
}

/// Renews the lease once.
async fn renew(session: &Session, validity: &Validity) -> Result<(), String> {
    let (lines, head) = session.file.head();
    let request = Renew { audit_lines: Some(lines), audit_head: Some(head) };
    let asked_at = session.shared.clock.latest();
    let reply = leased::send(&session.shared.gateway, &request, None, Some(&validity.text)).await;
    let issued = match reply.map_err(CallFailure::from).and_then(leased::output::<Renew>) {
        Ok(issued) => issued,
        Err(failure) => {
            if let CallFailure::Gateway(mcp::Error::Rejected { message, .. }) = &failure
                && *message == Denial::RevokedLease.to_string()
            {
                session.revoke();
            }
            return Err(failure.to_string());
        }
    };
    accept(session, validity, &issued, asked_at)
}

/// Uses a renewed lease, if it differs from the last one only in its times.
fn accept(session: &Session, before: &Validity, issued: &Issued, at: i64) -> Result<(), String> {
    let renewed = Lease::read(&issued.lease).map_err(|error| Chain(&error).to_string())?;
    let (old, new) = (&before.lease, &renewed);
    let is_same = Lease { not_before: old.not_before, expires_at: old.expires_at, ..new.clone() } == *old;
    if !is_same {
        return Err("the gateway returned another lease".to_owned());
    }
    let text: Arc<str> = issued.lease.as_str().into();
    // Recorded first: what is decided under it can then be checked.
    let recorded = session.record(Record::Renewed { lease: issued.lease.clone() });
    recorded.map_err(|error| Chain(&error).to_string())?;
    let now = session.shared.clock.latest();
    session.replace(Validity::received(renewed, text, at, now));
    debug!(lease.id = session.lease_id, "Lease renewed.");
    Ok(())
}
