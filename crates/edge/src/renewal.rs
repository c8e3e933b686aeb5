//! Renews a lease at half of its lifetime, and tells the gateway how long its audit is.

use std::{collections::BTreeSet, convert::Infallible, io, path::Path, sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::lease::{Issued, Renew};
use leased::CallFailure;
use policy::{Denial, Lease};
use subjects::edge::Record;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{Session, sidecar::Sidecar, validity::Validity};

const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Renews the lease of a session while it is polled. Never returns.
pub(crate) async fn keep_renewed(session: &Session) -> Infallible {
    let mut waits = RetryDelays::forever(MIN_PAUSE, MAX_PAUSE);
    loop {
        let validity = session.validity();
        sleep(validity.until_renewal()).await;
        if session.is_revoked() || session.file.closed().is_some() {
            // Ended permanently.
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

/// Uses a renewed lease, if it permits no more than the last one. Any gateway whose leases this node accepts
/// may have signed it: they share a store, and the node may reach another one each time.
fn accept(session: &Session, before: &Validity, issued: &Issued, at: i64) -> Result<(), String> {
    let renewed = Lease::read(&issued.lease).map_err(|error| Chain(&error).to_string())?;
    if !session.shared.trusts(&renewed.key) {
        return Err("it was signed with a key that this node does not trust".to_owned());
    }
    if !is_renewal_of(&before.lease, &renewed) {
        return Err("the gateway returned another lease".to_owned());
    }
    if renewed.key != before.lease.key {
        // Before it is in the audit: a process that continues the lease takes it from there.
        note_key(session, &before.lease.key, &renewed.key).map_err(|error| Chain(&error).to_string())?;
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

/// Returns whether `new` is `old` with other times, and with the same limits or narrower ones.
fn is_renewal_of(old: &Lease, new: &Lease) -> bool {
    let has_same_limits = Lease {
        not_before: old.not_before,
        expires_at: old.expires_at,
        key: old.key.clone(),
        local: old.local.clone(),
        tools: old.tools.clone(),
        ..new.clone()
    } == *old;
    let keeps_local = new.local.iter().all(|(namespace, pin)| old.local.get(namespace) == Some(pin));
    let keeps_tools = match &new.tools {
        Some(tools) => old.includes_patterns(tools),
        None => old.tools.is_none(),
    };
    has_same_limits && keeps_local && keeps_tools
}

/// Adds a key to those that signed the lease, for a process that continues it.
fn note_key(session: &Session, before: &str, key: &str) -> io::Result<()> {
    let folder = session.file.path().parent().unwrap_or(Path::new("."));
    let mut sidecar = Sidecar::read(folder, &session.lease_id).unwrap_or_else(|| Sidecar {
        parent_id: session.parent_id.clone(),
        gateway_key: before.to_owned(),
        other_keys: BTreeSet::new(),
        rules: session.rules.clone(),
    });
    if sidecar.names_key(key) {
        return Ok(());
    }
    sidecar.other_keys.insert(key.to_owned());
    sidecar.write(folder, &session.lease_id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use policy::AgentKind;

    use super::*;

    fn lease() -> Lease {
        Lease {
            lease_id: "l-1".into(),
            agent: AgentKind::Sandbox,
            user_id: "ada".into(),
            project_id: None,
            task_id: Some("t-1".into()),
            run_id: None,
            job_id: Some("j-1".into()),
            handoff_id: None,
            tools: Some(vec!["files.*".into(), "artifact.get".into()]),
            profile: None,
            node: Some("n-1".into()),
            holder: Some("holder".into()),
            audit_quota: Some(100),
            local: BTreeMap::from([("files".into(), "a".into()), ("gpu".into(), "b".into())]),
            rules: Some("rules".into()),
            not_before: 5,
            expires_at: 10,
            key: "key".into(),
        }
    }

    #[test]
    fn renewed_lease_may_permit_less() {
        let renewed = Lease { not_before: 9, expires_at: 14, key: "other".into(), ..lease() };
        let narrower = [
            lease(),
            renewed.clone(),
            Lease { local: BTreeMap::from([("gpu".into(), "b".into())]), ..renewed.clone() },
            Lease { local: BTreeMap::new(), ..renewed.clone() },
            Lease { tools: Some(vec!["files.read".into()]), ..renewed.clone() },
            Lease { tools: Some(Vec::new()), ..renewed },
        ];
        for new in narrower {
            assert!(is_renewal_of(&lease(), &new), "{new:?}");
        }
        let unlimited = Lease { tools: None, ..lease() };
        assert!(is_renewal_of(&unlimited, &lease()));
    }

    #[test]
    fn renewed_lease_must_not_permit_more() {
        let local = |name: &str, pin: &str| {
            let mut local = lease().local;
            local.insert(name.into(), pin.into());
            local
        };
        let wider = [
            Lease { lease_id: "l-2".into(), ..lease() },
            Lease { agent: AgentKind::ProjectManager, ..lease() },
            Lease { user_id: "bob".into(), ..lease() },
            Lease { task_id: None, ..lease() },
            Lease { task_id: Some("t-2".into()), ..lease() },
            Lease { job_id: None, ..lease() },
            Lease { tools: None, ..lease() },
            Lease { tools: Some(vec!["*".into()]), ..lease() },
            Lease { tools: Some(vec!["files.*".into(), "artifact.put".into()]), ..lease() },
            Lease { profile: Some("team-a".parse().unwrap()), ..lease() },
            Lease { node: None, ..lease() },
            Lease { node: Some("n-2".into()), ..lease() },
            Lease { holder: Some("thief".into()), ..lease() },
            Lease { audit_quota: Some(101), ..lease() },
            Lease { audit_quota: None, ..lease() },
            Lease { local: local("web-cache", "c"), ..lease() },
            Lease { local: local("files", "changed"), ..lease() },
            Lease { rules: Some("others".into()), ..lease() },
            Lease { rules: None, ..lease() },
        ];
        for new in wider {
            assert!(!is_renewal_of(&lease(), &new), "{new:?}");
        }
    }
}
