//! Regression tests of the promise: copies, outages, keys, replays, limits. Each test failed before its
//! defect was fixed.

mod continues;
mod copies;
mod keys;
mod limits;
mod outages;
mod poison;
mod replays;
mod restores;
mod tokens;
mod zombies;

use testkit::{Finished, Nats, cynodectl, run, workspace};

async fn ctl(nats: &Nats, arguments: &'static [&'static str]) -> Finished {
    let url = nats.url();
    let running = tokio::task::spawn_blocking(move || {
        let line: Vec<&str> = ["--server", &url].into_iter().chain(arguments.iter().copied()).collect();
        run(&cynodectl(), workspace(), &line, &[])
    });
    running.await.unwrap()
}
