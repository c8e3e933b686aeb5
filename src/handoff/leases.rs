//! Gives back the lease of a handoff that is answered.

use subjects::{Answer, ErrorCode};

use super::HandoffRunner;
use crate::admission::Admitted;

impl HandoffRunner {
    /// Revokes the lease of a handoff that needs it no more. Best effort: it ends by itself, if late.
    pub(super) async fn give_back_lease(&self, admitted: &Admitted) {
        if let Some(lease) = &admitted.lease {
            Box::pin(self.resources.tools.give_back(lease)).await;
        }
    }

    /// Revokes the lease of a handoff that another delivery answered, since its worker may have died before
    /// it could. A handoff that failed may be replayed under the same lease.
    pub(super) async fn give_back_lease_of_answered(&self, admitted: &Admitted) {
        if admitted.lease.is_none() {
            return;
        }
        let (role, id) = (admitted.handoff.kind().role(), admitted.handoff.id);
        let failure = match self.storage.read_answer(role, id).await {
            Ok(Some(Answer::Completion(answer))) => answer.error,
            Ok(Some(Answer::Findings(findings))) => findings.error,
            Ok(None) | Err(_) => return,
        };
        if failure.is_none_or(|failure| failure.code == ErrorCode::Cancelled) {
            self.give_back_lease(admitted).await;
        }
    }
}
