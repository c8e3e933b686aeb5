//! The lease of a handoff: on whose behalf the agent works. Held per handoff, renewed when it is about to
//! expire, and given back when the handoff is answered.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use policy::{AgentKind, Lease};
use subjects::{ErrorCode, Handoff, Refusal, Role, ScopeId};
use time::OffsetDateTime;

/// A lease is renewed when less than this part of its lifetime is left.
const RENEW_BELOW: i64 = 3;

/// The lease of one handoff. Its content does not change; its text does, with every renewal.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    current: std::sync::Mutex<Current>,
    /// Held while the lease is renewed: one renewal at a time.
    pub(crate) renewing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Current {
    text: Arc<str>,
    lifetime: Duration,
    expires_at: i64,
}

impl HeldLease {
    /// Reads the lease that a handoff carries and fills its ids into the scope of the handoff. The gateway
    /// verifies the signature with every call; here it only has to fit the handoff.
    pub(crate) fn admit(text: &str, handoff: &mut Handoff) -> Result<Self, Refusal> {
        let lease = Lease::read_unverified(text)
            .map_err(|error| Refusal::invalid(format!("header Cynode-Lease: {error}")))?;
        let expected = agent_kind(handoff.kind().role());
        if lease.agent != expected {
            let why = format!("the lease is for a {}, and a {expected} works on this", lease.agent);
            return Err(Refusal::invalid(why));
        }
        let is_own = |id: &String| {
            handoff.id.to_string() == *id || handoff.replays.iter().any(|of| of.to_string() == *id)
        };
        if lease.handoff_id.as_ref().is_some_and(|id| !is_own(id)) {
            return Err(mismatch("the lease is for another handoff"));
        }
        let task = handoff.work.verify().map(|verify| verify.task_id.clone());
        let scope = &mut handoff.scope;
        fill(&mut scope.user_id, Some(&lease.user_id), "user")?;
        fill(&mut scope.project_id, lease.project_id.as_ref(), "project")?;
        let mut task = task.or_else(|| scope.task_id.clone());
        fill(&mut task, lease.task_id.as_ref(), "task")?;
        if lease.task_id.is_some() {
            scope.task_id = task;
        }
        let current = Current::new(text, lease.not_before, lease.expires_at);
        Ok(Self { lease, current: current.into(), renewing: tokio::sync::Mutex::new(()) })
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.lock().text)
    }

    /// Returns whether the lease has to be renewed before it is used.
    pub(crate) fn is_due(&self) -> bool {
        let current = self.lock();
        let margin = i64::try_from(current.lifetime.as_micros()).unwrap_or(i64::MAX) / RENEW_BELOW;
        now() >= current.expires_at.saturating_sub(margin)
    }

    /// Replaces the text by a renewed one. One that cannot be read is ignored.
    pub(crate) fn replace(&self, text: &str) {
        if let Ok(renewed) = Lease::read_unverified(text) {
            *self.lock() = Current::new(text, now(), renewed.expires_at);
        }
    }

    /// The value is never left half written, so a poisoned lock is safe to use.
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn new(text: &str, from: i64, expires_at: i64) -> Self {
        let lifetime = u64::try_from(expires_at.saturating_sub(from)).unwrap_or_default();
        Self { text: text.into(), lifetime: Duration::from_micros(lifetime), expires_at }
    }
}

fn agent_kind(role: Role) -> AgentKind {
    match role {
        Role::ProjectManager => AgentKind::ProjectManager,
        Role::ProjectAnalyst => AgentKind::ProjectAnalyst,
    }
}

/// Returns the current time in microseconds since 1970.
fn now() -> i64 {
    i64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

fn mismatch(why: &str) -> Refusal {
    Refusal::new(ErrorCode::ScopeMismatch, why)
}

/// Sets an id of the scope to that of the lease. Refuses a handoff that names another one.
fn fill(id: &mut Option<ScopeId>, of_lease: Option<&String>, what: &str) -> Result<(), Refusal> {
    let Some(of_lease) = of_lease else { return Ok(()) };
    match id {
        Some(id) if id.as_str() == of_lease => Ok(()),
        Some(_) => Err(mismatch(&format!("handoff and lease name different {what}s"))),
        None => {
            let parsed =
                of_lease.parse().map_err(|_| mismatch(&format!("the {what} id of the lease is not one")));
            *id = Some(parsed?);
            Ok(())
        }
    }
}
