//! Model check of the claim protocol: explores every interleaving of two workers, two copies of a handoff and
//! its replay, with crashes, freezes, orderly stops, a server restart and a restored stream at every step.
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
    restores: 0,
    writes_again: true,
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

/// While its worker lives, a journal that the stream lost costs nothing.
#[test]
fn two_copies_with_a_restored_stream() {
    check("restores", Scenario { restores: 2, ..CALM });
    check("restores, stop", Scenario { restores: 1, stops: 1, ..CALM });
    let one = Scenario { copies: 1, model_failures: 1, replays: 2, ..CALM };
    check("restores, replay", Scenario { restores: 2, ..one });
}

/// If the worker is gone as well, the handoff starts over, and still has one answer.
#[test]
fn restored_stream_and_a_lost_worker() {
    check("restore, crash", Scenario { restores: 1, crashes: 1, ..CALM });
    check("restore, freeze", Scenario { restores: 1, freezes: 1, ..CALM });
    check("restore, restart", Scenario { restores: 1, restarts: 1, ..CALM });
}

#[test]
fn model_finds_what_a_journal_costs_that_is_not_written_again() {
    let explored = explore(Scenario { restores: 1, writes_again: false, ..CALM });
    let found = explored.violation.expect("the work is done again");
    println!("after {} states: {found}", explored.states);
    assert!(found.contains("paid more often"), "{found}");
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
