//! Model check of the claim protocol: explores every interleaving of two workers, two copies of a handoff and
//! its replay, with crashes, freezes, orderly stops and a server restart at every step.
//!
//! `protocol::History`, the code that workers run, decides what a delivery may do. The model adds the server
//! (compare-and-set, deliveries, redelivery), the state that a worker keeps in memory and loses, and the
//! gateway's handling of idempotency keys.

mod search;
mod world;

use search::{Explored, explore};
use world::{Rule, Scenario};

const CALM: Scenario = Scenario {
    rule: Rule::Messages,
    copies: 2,
    crashes: 0,
    freezes: 0,
    restarts: 0,
    stops: 0,
    model_failures: 0,
    replays: 0,
};

#[track_caller]
fn check(name: &str, scenario: Scenario) -> Explored {
    let explored = explore(scenario);
    println!("{name}: {} states, {} steps", explored.states, explored.steps);
    if let Some(found) = &explored.violation {
        panic!("{name}: {found}");
    }
    explored
}

#[test]
fn two_copies_with_a_crash_a_freeze_and_a_restart() {
    let explored = check("crash, freeze, restart", Scenario { crashes: 1, freezes: 1, restarts: 1, ..CALM });
    assert!(explored.states > 100_000, "the space is smaller than it should be: {}", explored.states);
}

#[test]
fn two_copies_with_crashes_until_poisoned() {
    check("crashes, stop", Scenario { crashes: 3, stops: 1, ..CALM });
}

#[test]
fn two_copies_with_orderly_stops() {
    check("stops", Scenario { stops: 3, ..CALM });
    check("stop, freeze", Scenario { stops: 1, freezes: 1, ..CALM });
}

#[test]
fn failure_dead_letter_and_replay() {
    let one = Scenario { copies: 1, model_failures: 1, replays: 2, ..CALM };
    check("replay, crash, freeze", Scenario { crashes: 1, freezes: 1, ..one });
    check("replay, crash, restart", Scenario { crashes: 1, restarts: 1, ..one });
    check("replay, copies, crash, restart", Scenario { copies: 2, crashes: 1, restarts: 1, ..one });
}

/// The previous rule: a copy takes over when the last entry is older than `ack_wait`, and any delivery of the
/// same message may take over. Heartbeats write no entry, so a long turn looks like a dead owner.
#[test]
fn model_finds_the_flaw_of_the_previous_rule() {
    let explored = explore(Scenario { rule: Rule::AgeOfLastEntry, ..CALM });
    let found = explored.violation.expect("copies fence each other");
    println!("after {} states: {found}", explored.states);
    assert!(found.contains("paid more often"), "{found}");
}
