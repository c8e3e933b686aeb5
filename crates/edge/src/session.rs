//! One lease in use: decides on calls, makes them, and records both before the answer.

mod recording;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use broker::Chain;
use policy::{Agent, Caller, Denial, Facts, LeaseStanding, Rule, Standing};
use rmcp::model::ErrorCode;
use serde_json::Map;
use subjects::edge::{CloseReason, EdgeCall, Record};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use recording::Progress;
pub use recording::Unrecorded;

use crate::{
    Answer, AppendError, AuditFile, Call,
    keys::{self, Claim, Claimed, Kept, Keys, Refusal},
    local::Found,
    outcome::CallOutcome,
    pass_on::PassedOn,
    shared::Shared,
    validity::Validity,
};

/// A request that is not formed as it must be, as the gateway records it.
const PROTOCOL: &str = "protocol";
const INVALID_ARGUMENTS: &str = "invalid_arguments";
const NOT_WRITABLE: &str = "the audit is not writable";

/// A lease of this node that is in use.
#[derive(Debug)]
pub struct Session {
    pub(crate) lease_id: String,
    /// The lease of the job.
    pub(crate) parent_id: String,
    pub(crate) file: AuditFile,
    pub(crate) shared: Arc<Shared>,
    validity: Mutex<Validity>,
    pub(crate) rules: Vec<Rule>,
    facts: Facts,
    is_revoked: AtomicBool,
    is_full: AtomicBool,
    slots: Semaphore,
    pub(crate) keys: Arc<Keys>,
    /// Calls with keys that are running.
    keyed_calls: TaskTracker,
    /// Why the audit ends, as it was when it was to be closed first.
    ending: OnceLock<CloseReason>,
    progress: watch::Sender<Progress>,
}

impl Session {
    pub(crate) fn new(
        shared: Arc<Shared>,
        parent_id: String,
        file: AuditFile,
        validity: Validity,
        rules: Vec<Rule>,
    ) -> Self {
        let lease = &validity.lease;
        Self {
            lease_id: lease.lease_id.clone(),
            parent_id,
            file,
            slots: Semaphore::new(shared.limits.concurrency),
            keys: Arc::new(Keys::new(shared.limits.keys, shared.limits.key_answer_bytes)),
            keyed_calls: TaskTracker::new(),
            ending: OnceLock::new(),
            progress: watch::Sender::default(),
            shared,
            rules,
            facts: lease.facts(),
            validity: Mutex::new(validity),
            is_revoked: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        }
    }

    pub fn lease_id(&self) -> &str {
        &self.lease_id
    }

    /// Returns the lease as it was last renewed.
    pub(crate) fn validity(&self) -> Validity {
        self.lock().clone()
    }

    pub(crate) fn replace(&self, renewed: Validity) {
        *self.lock() = renewed;
    }

    /// Ends the lease at once.
    pub(crate) fn revoke(&self) {
        if !self.is_revoked.swap(true, Ordering::AcqRel) {
            info!(lease.id = self.lease_id, "Lease revoked; its calls are denied.");
            self.close_if_revoked();
        }
    }

    /// Closes the audit of a revoked lease when its last call has ended, although the job may go on: the
    /// gateway expects the last line from then on.
    fn close_if_revoked(&self) {
        if self.is_revoked()
            && let Err(error) = self.close_with(AuditFile::close_if_idle)
        {
            warn!(lease.id = self.lease_id, error = %Chain(&error), "Audit of a revoked lease not closed.");
        }
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Acquire)
    }

    /// Returns what the lease is worth at the moment.
    pub(crate) fn standing(&self) -> Standing {
        let validity = self.lock();
        let lease = if self.is_revoked() {
            LeaseStanding::Revoked(validity.lease.clone())
        } else {
            validity.standing(&self.shared.clock)
        };
        drop(validity);
        let profile = lease.profile().cloned().unwrap_or_default();
        let token = self.shared.node.to_string();
        Standing::Valid(Caller { agent: Agent::Node(token.clone()), token, lease, profile })
    }

    /// Decides on a call, makes it if it is permitted, and records it. Whatever the answer says of a call to
    /// a tool of this node is in the audit file by then, unless the lease was revoked and its audit is
    /// closed.
    pub async fn call(self: &Arc<Self>, call: Call) -> Answer {
        if call.idempotency_key.is_none() {
            return self.run(call).await;
        }
        // Runs to its end although the agent may stop waiting: a repeated call gets its answer.
        let session = self.clone();
        let running = self.keyed_calls.spawn(async move { Box::pin(session.run(call)).await });
        running.await.unwrap_or_else(|error| {
            error!(lease.id = self.lease_id, %error, "Call panicked.");
            Answer::InDoubt
        })
    }

    /// Waits for the calls that run although no agent may wait for them.
    pub(crate) async fn wait_for_calls(&self) {
        self.keyed_calls.close();
        self.keyed_calls.wait().await;
    }

    async fn run(&self, mut call: Call) -> Answer {
        let started = Instant::now();
        let slot = self.slots.acquire().await;
        let is_closed = self.file.closed().is_some() && !self.is_revoked();
        if slot.is_err() || is_closed {
            return Answer::Unavailable("the lease has ended");
        }
        let about = call.to_audit();
        loop {
            let lease = self.lock().lease.clone();
            if !self.shared.local.has_namespace_of(&lease, &call.tool) {
                // A key that was used here stays here, although the gateway serves the namespace by now.
                let arguments = about.arguments_digest.as_deref().unwrap_or_default();
                let find = |key: &str| self.keys.find(key, &call.tool, arguments);
                match call.idempotency_key.as_deref().and_then(find) {
                    Some(Claimed::Running(ended)) => {
                        ended.cancelled().await;
                        continue;
                    }
                    Some(Claimed::Refused(refusal)) => return self.answer_again(about, &refusal, started),
                    Some(Claimed::Fresh(_)) | None => {
                        return self.pass_on(&self.standing(), about, call).await;
                    }
                }
            }
            if call.idempotency_key.as_deref().is_some_and(|key| !keys::is_valid(key)) {
                return self.refuse_key(about);
            }
            let found = self.shared.local.find(&lease, &call.tool).await;
            let known = found.as_ref().map(|found| &found.policy);
            // The time may have passed while the tools were listed, or while an earlier call was waited for.
            let standing = self.standing();
            if self.lock().lease.local != lease.local {
                // So may the right to the namespace: it was renewed without it.
                continue;
            }
            let decided = policy::decide(&standing, known, &self.rules, &call.arguments, &self.facts);
            let found = match (decided, found) {
                (Ok(_), Some(found)) => found,
                (Err(denial), _) => return self.deny(about, denial),
                (Ok(_), None) => return self.deny(about, Denial::UnknownTool),
            };
            if let Some(problem) = found.check_arguments(&mut call.arguments) {
                let error_type = INVALID_ARGUMENTS.to_owned();
                return match self.record_first(Record::Refused { call: about, denied: false, error_type }) {
                    Ok(_) => result(CallOutcome::failure(INVALID_ARGUMENTS, &problem)),
                    Err(error) => self.not_recorded(&error),
                };
            }
            let arguments = about.arguments_digest.as_deref().unwrap_or_default();
            let claim = |key: &str| self.keys.claim(key, &call.tool, arguments);
            let claim = match call.idempotency_key.as_deref().map(claim) {
                None => None,
                Some(Claimed::Fresh(claim)) => Some(claim),
                Some(Claimed::Running(ended)) => {
                    ended.cancelled().await;
                    continue;
                }
                Some(Claimed::Refused(refusal)) => return self.answer_again(about, &refusal, started),
            };
            return self.call_local(about, found, call, claim, started).await;
        }
    }

    /// Makes the decision and its line alone, for measurements.
    #[doc(hidden)]
    pub async fn decide_and_record(&self, call: &Call) -> Result<u64, AppendError> {
        let lease = self.lock().lease.clone();
        let found = self.shared.local.find(&lease, &call.tool).await;
        let standing = self.standing();
        let known = found.as_ref().map(|found| &found.policy);
        let decided = policy::decide(&standing, known, &self.rules, &call.arguments, &self.facts);
        let call = call.to_audit();
        match decided {
            Ok(_) => self.record(Record::Began(call)),
            Err(denial) => self.record(Record::Refused {
                call,
                denied: true,
                error_type: denial.error_type().to_owned(),
            }),
        }
    }

    async fn call_local(
        &self,
        about: EdgeCall,
        found: Found,
        call: Call,
        claim: Option<Claim>,
        started: Instant,
    ) -> Answer {
        let of = match self.record_first(Record::Began(about)) {
            Ok(n) => n,
            Err(error) => {
                settle(claim, None);
                return self.not_recorded(&error);
            }
        };
        let mut meta = Map::new();
        if let Some(traceparent) = call.traceparent {
            meta.insert("traceparent".to_owned(), traceparent.into());
        }
        let called = found.upstream.call(&found.remote, call.arguments, meta, None).await;
        let (called, kept) = CallOutcome::of(called);
        let (outcome, error_type) = (called.outcome, called.error_type.map(str::to_owned));
        let recorded = self.record(Record::Ended { of, outcome, error_type, duration_us: micros(started) });
        self.close_if_revoked();
        match recorded {
            Ok(_) => {
                settle(claim, kept);
                self.shared.counts.allowed.fetch_add(1, Ordering::Relaxed);
                result(called)
            }
            // The key is in doubt too: an answer that is not recorded is not given.
            Err(error) => {
                error!(lease.id = self.lease_id, error = %Chain(&error), "Outcome of a call not recorded.");
                Answer::InDoubt
            }
        }
    }

    /// Answers a call whose key an earlier call has, without making it.
    fn answer_again(&self, call: EdgeCall, refusal: &Refusal, started: Instant) -> Answer {
        let answered = CallOutcome::of_refused(refusal);
        let (outcome, error_type) = (answered.outcome, answered.error_type.map(str::to_owned));
        let record = Record::Answered { call, outcome, error_type, duration_us: micros(started) };
        match self.record_first(record) {
            Ok(_) => result(answered),
            Err(error) => self.not_recorded(&error),
        }
    }

    /// Refuses a key that the gateway would not accept either.
    fn refuse_key(&self, call: EdgeCall) -> Answer {
        match self.record_first(Record::Refused { call, denied: true, error_type: PROTOCOL.to_owned() }) {
            Ok(_) => Answer::Rejected {
                code: ErrorCode::INVALID_PARAMS.0.into(),
                message: format!(
                    "an idempotency key has 1 to {} bytes and no control characters",
                    keys::MAX_KEY_BYTES
                ),
            },
            Err(error) => self.not_recorded(&error),
        }
    }

    /// Records a call that is not permitted, and answers it.
    pub(crate) fn deny(&self, call: EdgeCall, denial: Denial) -> Answer {
        info!(call.id = call.call_id, tool = call.tool, reason = %denial, "Call denied.");
        self.shared.counts.denied.fetch_add(1, Ordering::Relaxed);
        let error_type = denial.error_type().to_owned();
        match self.record_first(Record::Refused { call, denied: true, error_type }) {
            Ok(_) => Answer::Denied(denial),
            // Once the lease has ended, its audit may be closed.
            Err(AppendError::Closed) => Answer::Denied(denial),
            Err(error) => self.not_recorded(&error),
        }
    }

    async fn pass_on(&self, standing: &Standing, about: EdgeCall, call: Call) -> Answer {
        if let Err(denial) = crate::pass_on::check(standing, &call.tool) {
            return self.deny(about, denial);
        }
        if !self.begin_passing_on() {
            return Answer::Unavailable(NOT_WRITABLE);
        }
        let text = self.lock().text.clone();
        match crate::pass_on::send(&self.shared.gateway, call, &text).await {
            PassedOn::Answered(result) => {
                self.shared.counts.passed_on.fetch_add(1, Ordering::Relaxed);
                Answer::Result(result)
            }
            PassedOn::Rejected { code, message } => {
                self.shared.counts.passed_on.fetch_add(1, Ordering::Relaxed);
                Answer::Rejected { code, message }
            }
            PassedOn::Unanswered(why) => Answer::Unavailable(why),
            // The gateway has no row of it.
            PassedOn::Unsent(why) => {
                let error_type = "gateway_unavailable".to_owned();
                match self.record(Record::Refused { call: about, denied: false, error_type }) {
                    Ok(_) => Answer::Unavailable(why),
                    Err(error) => self.not_recorded(&error),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Validity> {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn result(called: CallOutcome) -> Answer {
    Answer::Result(Box::new(called.result))
}

/// Stores what is kept of a call under its key, if it has one, or frees the key.
fn settle(claim: Option<Claim>, kept: Option<Kept>) {
    match (claim, kept) {
        (Some(claim), Some(kept)) => claim.settle(kept),
        (Some(claim), None) => claim.release(),
        (None, _) => {}
    }
}

fn micros(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX)
}
