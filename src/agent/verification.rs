//! Verification of a task by an analyst, requested by the model within a conversation.

use std::sync::atomic::Ordering;

use contract::{ToolContract, lease, task};
use crash::reach;
use policy::{AgentKind, ScopedId};
use serde_json::json;
use subjects::{
    Act, Context, ErrorCode, Failure, Findings, Handoff, HandoffId, Scope, ScopeId, StepOutcome,
    Verification, Verify, Work, journal::Verified,
};
use tracing::debug;

use super::{
    WorkError,
    conversation::Observation,
    ledger::{Lane, StepEnd},
    live::LiveStep,
    session::{Session, failed_step},
};
use crate::{
    analysts,
    crash_points::Point,
    journal::Remembered,
    recording::Timed,
    tools::{CallError, NotIssued, REQUEST_VERIFICATION, VerificationRequest},
};

impl Session<'_> {
    /// W6: has an analyst verify a task. Returns the result for the model and records the findings for the
    /// answer. Fails if the gateway rejects a call that this takes, or is away for too long.
    pub(super) async fn verify(&self, request: VerificationRequest) -> Result<Observation, WorkError> {
        let index = self.ledger.begin_step(Lane::MAIN, Act::Analyst, &request.task_id);
        // Before anything is awaited: concurrent verifications have the same numbers in every attempt.
        let number = self.verifications.fetch_add(1, Ordering::Relaxed);
        let task_id = match self.resolve_task(&request.task_id).await {
            Ok(task_id) => task_id,
            Err(error) => {
                self.ledger.end_step(index, failed_step(0, 0, error.to_string()));
                self.live.not_called(Some(REQUEST_VERIFICATION), StepOutcome::Failed);
                return match error {
                    NotVerified::Because(why) => {
                        Ok(Observation { text: format!("Error: {why}"), failed: true })
                    }
                    NotVerified::CallFailed(error) => Err(error),
                };
            }
        };
        let verify = Verify {
            task_id,
            acceptance_criteria: request.acceptance_criteria,
            artifacts: Vec::new(),
            evidence: Vec::new(),
            policy: None,
        };
        match self.verify_numbered(index, number, &request.task_id, verify).await {
            Ok(findings) => {
                let failed = outcome_of(&findings) == StepOutcome::Failed;
                Ok(Observation { text: render_findings(&findings), failed })
            }
            // Not the model's mistake, so it is not reported as failed: the model should tell the user, not
            // retry.
            Err(NotVerified::Because(why)) => {
                let text = format!("Not verified: {why}. Say so in the answer.");
                Ok(Observation { text, failed: false })
            }
            Err(NotVerified::CallFailed(error)) => Err(error),
        }
    }

    /// W6: has an analyst verify the result of a step. Returns the findings, which are also recorded for the
    /// answer, or why there are none.
    pub(super) async fn verify_result(&self, verify: Verify) -> Result<Findings, NotVerified> {
        let name = verify.task_id.to_string();
        let index = self.ledger.begin_step(Lane::MAIN, Act::Analyst, &name);
        let number = self.verifications.fetch_add(1, Ordering::Relaxed);
        self.verify_numbered(index, number, &name, verify).await
    }

    /// Has an analyst verify a task, as the `number`th verification of this handoff and the step `index`.
    async fn verify_numbered(
        &self,
        index: usize,
        number: u32,
        name: &str,
        verify: Verify,
    ) -> Result<Findings, NotVerified> {
        let task_id = verify.task_id.clone();
        let of = json!([task_id, verify.acceptance_criteria]).to_string();
        let ids = self.verification_ids(u64::from(number), &of);
        let mut handoff = self.verify_handoff(ids[0], verify);
        let step = LiveStep { index, act: Act::Analyst, name: Some(name) };
        let Timed { value, ms } = self.obtain_findings(step, &mut handoff, &ids).await;
        let verification = |status, findings, error| Verification {
            handoff_id: handoff.id,
            task_id,
            status,
            findings,
            error,
        };
        match value {
            Ok(findings) => {
                let detail = findings.error.as_ref().map(|error| error.message.clone());
                self.ledger.end_step(index, StepEnd { outcome: outcome_of(&findings), ms, tries: 1, detail });
                let status = findings.error.is_none().then_some(findings.status);
                let found = verification(status, findings.findings.clone(), findings.error.clone());
                self.ledger.record_verification(number, found);
                Ok(findings)
            }
            Err(error) => {
                let why = error.to_string();
                self.ledger.end_step(index, failed_step(ms, 1, why.clone()));
                let failure = Failure::new(ErrorCode::ToolFailed, why.clone());
                self.ledger.record_verification(number, verification(None, Vec::new(), Some(failure)));
                Err(match error {
                    analysts::Error::Call(CallError::TokenRefused { why }) => {
                        self.journal.hand_back(why).await
                    }
                    analysts::Error::Call(error) => NotVerified::CallFailed(error.into()),
                    _ => NotVerified::Because(why),
                })
            }
        }
    }

    /// Returns the id of the task that the model named, by its id or its name.
    async fn resolve_task(&self, named: &str) -> Result<ScopeId, NotVerified> {
        let invalid = |_| NotVerified::Because("the task id is not one".to_owned());
        let id: ScopeId = named.trim().parse().map_err(invalid)?;
        let is_given = self.handoff.context.task.as_ref().is_some_and(|task| task.id == id);
        if let Some(own) = self.scoped_ids.fixed(ScopedId::Task)
            && !is_given
            && own != id.as_str()
        {
            return Err(NotVerified::Because(format!("this is about task_id {own} alone; name that one")));
        }
        if is_given || !self.catalogue.has(task::Get::NAME) {
            return Ok(id);
        }
        match self.call(&task::Get { task_id: id.clone() }).await {
            Ok(found) if found.failed => {
                Err(NotVerified::Because(format!("{}; db.task.list has the tasks", found.text)))
            }
            Ok(found) => {
                let found = found.parse::<task::Task>().ok();
                Ok(found.and_then(|task| task.task_id.parse().ok()).unwrap_or(id))
            }
            // Not called, for what the model wrote.
            Err(WorkError::ToolFailed { why, .. }) => Err(NotVerified::Because(why)),
            Err(error) => Err(NotVerified::CallFailed(error)),
        }
    }

    /// Returns the id of a verification followed by those of its replays. The replay of a handoff derives the
    /// same ids as the handoff, so that no verification is made twice.
    fn verification_ids(&self, number: u64, of: &str) -> Vec<HandoffId> {
        let first = self.handoff.replays.first().unwrap_or(&self.handoff.id).verification_id(number, of);
        let ids = std::iter::successors(Some(first), |id| Some(id.replay_id()));
        // An operator may also have replayed the dead letters of the verification; allows for eight of them.
        let replays = if self.handoff.replays.is_empty() { 0 } else { self.handoff.replays.len() + 8 };
        ids.take(replays + 1).collect()
    }

    /// Returns the journalled findings if there are any, and otherwise hands the verification off and waits
    /// for them. A verification that failed for a handoff that this one replays is replayed under its next
    /// id.
    async fn obtain_findings(
        &self,
        step: LiveStep<'_>,
        handoff: &mut Handoff,
        ids: &[HandoffId],
    ) -> Timed<Result<Findings, analysts::Error>> {
        if let Some(Remembered { value, ms }) = self.journal.take_verification(ids) {
            return Timed { value: Ok(value), ms };
        }
        self.live.started(step);
        for (index, next) in ids.iter().enumerate().skip(1) {
            if !self.resources.analysts.check_failed(handoff.id).await {
                break;
            }
            (handoff.id, handoff.replays) = (*next, ids[..index].to_vec());
        }
        let handoff = &*handoff;
        self.journal.write_and_confirm().await;
        let asked = || json!(handoff.work.verify());
        let live = Box::pin(async {
            reach(Point::BeforeVerification).await;
            self.ledger.verification_started(handoff.id);
            let found = match self.answered_before(handoff).await {
                Some(findings) => Ok(findings),
                None => self.hand_off(handoff).await,
            };
            self.ledger.verification_ended(handoff.id);
            reach(Point::VerificationAnswered).await;
            found
        });
        let missing = || Err(analysts::Error::NotRecorded);
        let found =
            self.resources.recording.record_or_replay(&self.effects, "analyst", asked, live, missing).await;
        let outcome = found.value.as_ref().map_or(StepOutcome::Failed, outcome_of);
        self.live.ended(step, outcome, 1, found.ms);
        if let Ok(findings) = &found.value {
            let (handoff_id, findings, ms) = (handoff.id, findings.clone(), found.ms);
            self.journal.record_verification(Verified { handoff_id, findings, ms });
        }
        found
    }

    /// Returns the findings of a verification that an earlier attempt, or the handoff that this one replays,
    /// had handed off. A lease for it would be given back by no analyst.
    async fn answered_before(&self, handoff: &Handoff) -> Option<Findings> {
        if self.journal.attempt() == 1 && self.handoff.replays.is_empty() {
            return None;
        }
        self.resources.analysts.read_findings(handoff).await
    }

    async fn hand_off(&self, handoff: &Handoff) -> Result<Findings, analysts::Error> {
        let (lease, traceparent) = (self.issue_analyst_lease(handoff).await?, self.traceparent());
        self.resources.analysts.verify(handoff, lease.as_deref(), &traceparent).await
    }

    /// Requests a lease for the analyst: the same user, the one task. `None` if this handoff has
    /// no lease itself and the gateway issues none; the analyst then works with what the handoff contains.
    /// The key makes every attempt get the same lease.
    async fn issue_analyst_lease(&self, handoff: &Handoff) -> Result<Option<String>, analysts::Error> {
        let Some(verify) = handoff.work.verify() else { return Ok(None) };
        // Under a lease the gateway knows the user, also for a task without an owner.
        let user = handoff.scope.user_id.clone().filter(|_| self.lease.is_none());
        if user.is_none() && self.lease.is_none() {
            return Ok(None);
        }
        let wanted = lease::Issue {
            // The project is that of the task, which need not be the one that the handoff is about.
            task_id: Some(verify.task_id.clone()),
            handoff_id: handoff.id.to_string().parse().ok(),
            ..lease::Issue::new(AgentKind::ProjectAnalyst, user)
        };
        let key = format!("{}/lease", handoff.id);
        let issued = Box::pin(self.resources.tools.issue_lease(&wanted, &key, self.lease)).await;
        match issued {
            Ok(issued) => Ok(Some(issued.lease)),
            // A manager without a lease may be one that may issue none.
            Err(NotIssued::Failed(why) | NotIssued::Call(CallError::Rejected { why, .. }))
                if self.lease.is_none() =>
            {
                debug!(handoff.id = %self.handoff.id, why, "No lease for the analyst.");
                Ok(None)
            }
            Err(NotIssued::Failed(why)) => Err(analysts::Error::NoLease(why)),
            Err(NotIssued::Call(error)) => Err(analysts::Error::Call(error)),
        }
    }

    /// Appends a note for each task that could not be verified, since the model may forget to mention it.
    pub(super) fn append_unverified(&self, mut content: String) -> String {
        for (task, why) in self.ledger.unverified() {
            content.push_str(&format!("\n\n(`{task}` was not verified: {why}.)"));
        }
        content
    }

    fn verify_handoff(&self, id: HandoffId, verify: Verify) -> Handoff {
        let (own, task_id) = (self.handoff, verify.task_id.clone());
        let is_own_task = own.context.task.as_ref().is_some_and(|task| task.id == task_id);
        Handoff {
            id,
            // The same in every attempt, so that the verification has the same bytes.
            issued_at: own.issued_at.clone(),
            deadline: own.deadline.clone(),
            reply_to: None,
            scope: Scope { task_id: Some(task_id), thread_id: None, ..own.scope.clone() },
            context: Context {
                project: own.context.project.clone(),
                task: own.context.task.clone().filter(|_| is_own_task),
                preferences: own.context.preferences.clone(),
            },
            replays: Vec::new(),
            work: Work::Verify(verify),
        }
    }
}

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotVerified {
    /// The work goes on without them.
    #[error("{0}")]
    Because(String),
    /// A tool call that the verification takes was rejected or could not be made, which ends the handoff like
    /// any other such call.
    #[error(transparent)]
    CallFailed(WorkError),
}

fn outcome_of(findings: &Findings) -> StepOutcome {
    if findings.error.is_none() { StepOutcome::Ok } else { StepOutcome::Failed }
}

/// Renders findings as JSON for the model.
fn render_findings(findings: &Findings) -> String {
    let error = findings.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
    let rendered = json!({
        "status": if findings.error.is_none() { json!(findings.status) } else { json!("not_verified") },
        "error": error,
        "findings": findings.findings,
        "recommended_actions": findings.recommended_actions,
    });
    rendered.to_string()
}
