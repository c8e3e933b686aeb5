//! Verification of a task by an analyst, requested by the model within a conversation.

use std::sync::atomic::Ordering;

use serde_json::json;
use subjects::{
    Act, Context, ErrorCode, Failure, Findings, Handoff, HandoffId, Progress, Scope, ScopeId, StepOutcome,
    Verification, Verify, Work, journal::Verified,
};

use super::{
    conversation::Observation,
    ledger::{Lane, StepEnd},
    session::{Session, failed_step},
};
use crate::{analysts, journal::Remembered, recording::Timed, tools::VerificationRequest};

impl Session<'_> {
    /// W6: has an analyst verify a task. Returns the result for the model and records the findings for the
    /// answer.
    pub(super) async fn verify(&self, request: VerificationRequest) -> Observation {
        let invalid = |why: String| Observation { text: format!("Error: {why}"), failed: true };
        let index = self.ledger.begin_step(Lane::MAIN, Act::Analyst, &request.task_id);
        let Ok(task_id) = request.task_id.parse::<ScopeId>() else {
            let why = "the task id is not one".to_owned();
            self.ledger.end_step(index, failed_step(0, 0, why.clone()));
            return invalid(why);
        };
        self.live.publish_progress(Progress::Verifying, Some(&request.task_id));
        let number = self.verifications.fetch_add(1, Ordering::Relaxed);
        let of = json!([task_id, request.acceptance_criteria]).to_string();
        let ids = self.verification_ids(u64::from(number), &of);
        let mut handoff = self.verify_handoff(ids[0], task_id.clone(), request.acceptance_criteria);
        let Timed { value, ms } = self.obtain_findings(&mut handoff, &ids).await;
        let verification = |status, findings, error| Verification {
            handoff_id: handoff.id,
            task_id,
            status,
            findings,
            error,
        };
        match value {
            Ok(findings) => {
                let outcome = if findings.error.is_none() { StepOutcome::Ok } else { StepOutcome::Failed };
                let detail = findings.error.as_ref().map(|error| error.message.clone());
                self.ledger.end_step(index, StepEnd { outcome, ms, tries: 1, detail });
                let text = render_findings(&findings);
                let status = findings.error.is_none().then_some(findings.status);
                self.ledger
                    .record_verification(number, verification(status, findings.findings, findings.error));
                Observation { text, failed: outcome == StepOutcome::Failed }
            }
            Err(error) => {
                let why = error.to_string();
                self.ledger.end_step(index, failed_step(ms, 1, why.clone()));
                let failure = Failure::new(ErrorCode::ToolFailed, why.clone());
                self.ledger.record_verification(number, verification(None, Vec::new(), Some(failure)));
                // Not the model's mistake, so it is not reported as failed: the model should tell the user,
                // not retry.
                Observation { text: format!("Not verified: {why}. Say so in the answer."), failed: false }
            }
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
        handoff: &mut Handoff,
        ids: &[HandoffId],
    ) -> Timed<Result<Findings, analysts::Error>> {
        if let Some(Remembered { value, ms }) = self.journal.take_verification(ids) {
            return Timed { value: Ok(value), ms };
        }
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
            self.ledger.verification_started(handoff.id);
            let found = self.resources.analysts.verify(handoff, &self.traceparent()).await;
            self.ledger.verification_ended(handoff.id);
            found
        });
        let missing = || Err(analysts::Error::NotRecorded);
        let found =
            self.resources.recording.record_or_replay(&self.effects, "analyst", asked, live, missing).await;
        if let Ok(findings) = &found.value {
            let (handoff_id, findings, ms) = (handoff.id, findings.clone(), found.ms);
            self.journal.record_verification(Verified { handoff_id, findings, ms });
        }
        found
    }

    /// Appends a note for each task that could not be verified, since the model may forget to mention it.
    pub(super) fn append_unverified(&self, mut content: String) -> String {
        for (task, why) in self.ledger.unverified() {
            content.push_str(&format!("\n\n(`{task}` was not verified: {why}.)"));
        }
        content
    }

    fn verify_handoff(&self, id: HandoffId, task_id: ScopeId, acceptance_criteria: Vec<String>) -> Handoff {
        let own = self.handoff;
        let is_own_task = own.context.task.as_ref().is_some_and(|task| task.id == task_id);
        Handoff {
            id,
            // The same in every attempt, so that the verification has the same bytes.
            issued_at: own.issued_at.clone(),
            deadline: own.deadline.clone(),
            reply_to: None,
            scope: Scope { task_id: Some(task_id.clone()), thread_id: None, ..own.scope.clone() },
            context: Context {
                project: own.context.project.clone(),
                task: own.context.task.clone().filter(|_| is_own_task),
                preferences: own.context.preferences.clone(),
            },
            replays: Vec::new(),
            work: Work::Verify(Verify {
                task_id,
                acceptance_criteria,
                artifacts: Vec::new(),
                evidence: Vec::new(),
                policy: None,
            }),
        }
    }
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
