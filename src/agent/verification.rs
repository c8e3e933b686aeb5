use std::sync::atomic::Ordering;

use serde_json::json;
use subjects::{
    Act, Context, ErrorCode, Failure, Findings, Handoff, HandoffId, Progress, Scope, ScopeId, StepOutcome,
    Verification, Verify, Work, journal::Verified,
};

use super::{
    ledger::{Lane, StepEnd},
    session::{Session, failed},
    turn::Observed,
};
use crate::{analysts, journal::Remembered, recording::Timed, tools::VerificationWanted};

impl Session<'_> {
    /// W6: has an analyst verify a task. Whatever comes of it goes back to the model, and findings into the answer.
    pub(super) async fn verify(&self, wanted: VerificationWanted) -> Observed {
        let not_asked = |why: String| Observed { text: format!("Error: {why}"), failed: true };
        let index = self.ledger.begin(Lane::MAIN, Act::Analyst, &wanted.task_id);
        let Ok(task_id) = wanted.task_id.parse::<ScopeId>() else {
            let why = "the task id is not one".to_owned();
            self.ledger.end(index, failed(0, 0, why.clone()));
            return not_asked(why);
        };
        self.live.tell(Progress::Verifying, Some(&wanted.task_id));
        let number = self.verifications.fetch_add(1, Ordering::Relaxed);
        let of = json!([task_id, wanted.acceptance_criteria]).to_string();
        let ids = self.verification_ids(u64::from(number), &of);
        let mut handoff = self.verify_handoff(ids[0], task_id.clone(), wanted.acceptance_criteria);
        let Timed { value, ms } = self.findings_of(&mut handoff, &ids).await;
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
                self.ledger.end(index, StepEnd { outcome, ms, tries: 1, detail });
                let text = in_words(&findings);
                let status = findings.error.is_none().then_some(findings.status);
                self.ledger.verified(number, verification(status, findings.findings, findings.error));
                Observed { text, failed: outcome == StepOutcome::Failed }
            }
            Err(error) => {
                let why = error.to_string();
                self.ledger.end(index, failed(ms, 1, why.clone()));
                let failure = Failure::new(ErrorCode::ToolFailed, why.clone());
                self.ledger.verified(number, verification(None, Vec::new(), Some(failure)));
                // Not a mistake of the model's: it should tell the reader, not try again.
                Observed { text: format!("Not verified: {why}. Say so in the answer."), failed: false }
            }
        }
    }

    /// The id of a verification, and those of its replays. The replay of a handoff asks for the same verifications as the
    /// handoff, so that none is made twice.
    fn verification_ids(&self, number: u64, of: &str) -> Vec<HandoffId> {
        let first = self.handoff.replays.first().unwrap_or(&self.handoff.id).verification(number, of);
        let ids = std::iter::successors(Some(first), |id| Some(id.replayed()));
        // An operator may have replayed its letters as well.
        let replays = if self.handoff.replays.is_empty() { 0 } else { self.handoff.replays.len() + 8 };
        ids.take(replays + 1).collect()
    }

    /// Hands a verification off and waits, unless its findings are known. One that failed for a handoff that this one
    /// replays is replayed.
    async fn findings_of(
        &self,
        handoff: &mut Handoff,
        ids: &[HandoffId],
    ) -> Timed<Result<Findings, analysts::Error>> {
        if let Some(Remembered { value, ms }) = self.journal.verification(ids) {
            return Timed { value: Ok(value), ms };
        }
        for (index, next) in ids.iter().enumerate().skip(1) {
            if !self.bench.analysts.has_failed(handoff.id).await {
                break;
            }
            (handoff.id, handoff.replays) = (*next, ids[..index].to_vec());
        }
        let handoff = &*handoff;
        self.journal.secure().await;
        let asked = || json!(handoff.work.verify());
        let live = Box::pin(async {
            self.ledger.hands_off(handoff.id);
            let found = self.bench.analysts.verify(handoff, &self.traceparent()).await;
            self.ledger.heard_of(handoff.id);
            found
        });
        let missing = || Err(analysts::Error::NotRecorded);
        let found = self.bench.recording.through(self.ledger, "analyst", asked, live, missing).await;
        if let Ok(findings) = &found.value {
            let (handoff_id, findings, ms) = (handoff.id, findings.clone(), found.ms);
            self.journal.verified(Verified { handoff_id, findings, ms });
        }
        found
    }

    /// A model may forget to say that something was not verified; the answer does not.
    pub(super) fn with_unverified(&self, mut content: String) -> String {
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
            // The same for every attempt, so that the same verification has the same bytes.
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

/// For the model.
fn in_words(findings: &Findings) -> String {
    let error = findings.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
    let said = json!({
        "status": if findings.error.is_none() { json!(findings.status) } else { json!("not_verified") },
        "error": error,
        "findings": findings.findings,
        "recommended_actions": findings.recommended_actions,
    });
    said.to_string()
}
