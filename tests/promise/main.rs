//! The promise where it was broken once: copies, outages, keys, replays, limits. Each test failed before its mechanism
//! was put right.

mod continues; // a continue reads the answer it goes on from
mod copies; // one handoff, several messages in the queue
mod keys; // idempotency keys are never used for two calls
mod limits; // sizes, times, ages
mod outages; // something is away for a while
mod poison; // what counts against a handoff
mod replays; // dead letters, replayed
mod tokens; // the worker's own token is refused

use subjects::{Answer, Completion, HandoffId, Kind};
use testkit::Orchestrator;

fn completion(answer: Answer) -> Completion {
    match answer {
        Answer::Completion(completion) => completion,
        other => panic!("not a completion: {other:?}"),
    }
}

async fn answer_to(orchestrator: &Orchestrator, id: HandoffId) -> Completion {
    completion(orchestrator.answered(Kind::Chat, id).await)
}
