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
mod zombies; // one that lost its handoff asks nothing

use testkit::{Finished, Nats, cynodectl, run, workspace};

async fn ctl(nats: &Nats, arguments: &'static [&'static str]) -> Finished {
    let url = nats.url();
    let running = tokio::task::spawn_blocking(move || {
        let line: Vec<&str> = ["--server", &url].into_iter().chain(arguments.iter().copied()).collect();
        run(&cynodectl(), workspace(), &line, &[])
    });
    running.await.unwrap()
}
