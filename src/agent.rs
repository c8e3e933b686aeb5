//! Works on an accepted handoff and produces its outcome. It never publishes the answer and never settles.
//!
//! `conversation` decides what to do next and does no I/O. All calls to models, tools and analysts go through
//! a `Session`, which counts them, times them and records them in the ledger.

mod ask_structured;
mod calls;
mod claims;
mod conversation;
mod converse;
mod evidence;
mod gather;
mod kinds;
mod ledger;
mod live;
mod look_up;
mod outcome;
mod plan_execution;
mod recall;
mod recorded;
mod remediation;
mod resources;
mod review_rules;
mod scoped_ids;
mod session;
mod start_workflow;
mod structured_outputs;
mod verification;
mod workflow_outputs;

pub(crate) use ledger::{Ledger, LedgerSummary};
pub(crate) use live::LivePublisher;
pub(crate) use outcome::{AnswerBody, Outcome, WorkError};
pub(crate) use resources::{AgentResources, Settings};

use leased::HeldLease;
use session::Session;
use subjects::{Handoff, Work};

use crate::journal::Journal;

/// One handoff and everything that is needed to work on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkContext<'a> {
    pub(crate) resources: &'a AgentResources,
    pub(crate) handoff: &'a Handoff,
    pub(crate) lease: Option<&'a HeldLease>,
    pub(crate) trace_id: &'a str,
    pub(crate) ledger: &'a Ledger,
    pub(crate) live: &'a LivePublisher<'a>,
    pub(crate) journal: &'a Journal,
}

/// Works on a handoff to its outcome. Errors become an outcome too. If the future is dropped early, the
/// ledger still holds all steps that were done.
pub(crate) async fn work(context: WorkContext<'_>) -> Outcome {
    let worked = async {
        // Boxed, so that the state of gathering the context is freed before the work begins.
        let mut session = Box::pin(Session::open(context)).await?;
        match &context.handoff.work {
            Work::Chat(chat) => Box::pin(kinds::chat::work(&mut session, chat)).await,
            Work::Plan(plan) => Box::pin(kinds::plan::work(&mut session, plan)).await,
            Work::Schedule(schedule) => Box::pin(kinds::schedule::work(&mut session, schedule)).await,
            Work::Continue(input) => Box::pin(kinds::resume::work(&mut session, input)).await,
            Work::Review(review) => Box::pin(kinds::review::work(&mut session, review)).await,
            Work::Verify(verify) => Box::pin(kinds::verify::work(&mut session, verify)).await,
        }
    };
    worked.await.unwrap_or_else(Outcome::from)
}
