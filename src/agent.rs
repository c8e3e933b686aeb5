//! From an accepted handoff to what is answered. It never publishes the answer and never settles.
//!
//! The conversation with a model is decided in `turn`, which does no I/O; everything that reaches outside goes
//! through a `Session`, which counts it, times it and writes it into the ledger.

mod bench; // what every handoff of an instance is worked on with
mod calls; // tools, called
mod converse; // observe, reason, act
mod coordinator; // who carries out which step of a plan
mod gather; // layers 3 to 5: from the handoff, or fetched
mod kinds; // chat, plan, schedule, continue, verify
mod ledger; // what was done and used so far
mod live; // deltas and events, best effort
mod outcome; // what the work came to
mod session; // the only way outside
mod think; // one typed question
mod thoughts; // the forms of typed answers
mod turn; // pure: what follows from what
mod verification; // an analyst asked from within a conversation

pub(crate) use bench::{Bench, Settings};
pub(crate) use ledger::{Account, Ledger};
pub(crate) use live::Live;
pub(crate) use outcome::{Broken, Outcome, Said};

use session::Session;
use subjects::{Handoff, Work};

use crate::journal::Journal;

/// A handoff, and what there is for working on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) handoff: &'a Handoff,
    pub(crate) trace_id: &'a str,
    pub(crate) ledger: &'a Ledger,
    pub(crate) live: &'a Live<'a>,
    pub(crate) journal: &'a Journal,
}

/// Works on a handoff until it comes to something. What was done is in the ledger, also when this is dropped halfway.
pub(crate) async fn work(around: Around<'_>) -> Outcome {
    let worked = async {
        // Boxed: what it took to gather need not be kept while the work goes on.
        let mut session = Box::pin(Session::open(around)).await?;
        match &around.handoff.work {
            Work::Chat(chat) => Box::pin(kinds::chat::work(&mut session, chat)).await,
            Work::Plan(plan) => Box::pin(kinds::plan::work(&mut session, plan)).await,
            Work::Schedule(schedule) => Box::pin(kinds::schedule::work(&mut session, schedule)).await,
            Work::Continue(input) => Box::pin(kinds::resume::work(&mut session, input)).await,
            Work::Verify(verify) => Box::pin(kinds::verify::work(&mut session, verify)).await,
        }
    };
    worked.await.unwrap_or_else(Outcome::from)
}
