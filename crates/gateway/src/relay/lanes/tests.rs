use broker::{PublishError, Unconfirmed};
use store::entity::outbox;

use super::*;

const REFUSED: &str = "cynode.test.refused";
const OTHER: &str = "cynode.test.other";

fn message(id: i64, key: &str, subject: &str) -> outbox::Model {
    outbox::Model {
        id,
        subject: subject.to_owned(),
        message_id: format!("message-{id}"),
        body: String::new(),
        created_at: 0,
        stream: "TEST".to_owned(),
        ordering: key.to_owned(),
        only_if: None,
        headers: None,
    }
}

/// One message of each of many keys.
fn messages(subject: &str, keys: std::ops::Range<i64>) -> Vec<outbox::Model> {
    keys.map(|id| message(id, &format!("{subject}/{id}"), subject)).collect()
}

fn refusal() -> Failure {
    Failure::Publish(REFUSED.to_owned(), PublishError::Unconfirmed(Unconfirmed::NoResponders))
}

fn too_large() -> Failure {
    Failure::Publish(REFUSED.to_owned(), PublishError::TooLarge)
}

fn ids(runs: &[Run]) -> Vec<Vec<i64>> {
    runs.iter().map(|run| run.messages.iter().map(|message| message.id).collect()).collect()
}

fn end_all(lanes: &mut Lanes, runs: &[Run], failure: Option<&Failure>, now: Instant) {
    for run in runs {
        lanes.end(&run.key, &run.subject, failure, now);
    }
}

#[test]
fn messages_of_one_key_are_published_in_order_and_those_of_others_meanwhile() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let batch =
        vec![message(1, "a", OTHER), message(2, "b", OTHER), message(3, "a", OTHER), message(4, "b", OTHER)];
    let runs = lanes.start(batch, now);
    assert_eq!(ids(&runs), [[1, 3], [2, 4]]);
    let mut keys = lanes.left_out(now, true).keys;
    keys.sort();
    assert_eq!(keys, ["a", "b"], "keys in flight are left out");
    // Also if it is read nevertheless.
    assert_eq!(ids(&lanes.start(vec![message(5, "a", OTHER)], now)), Vec::<Vec<i64>>::new());
    lanes.end("a", OTHER, None, now);
    assert_eq!(ids(&lanes.start(vec![message(5, "a", OTHER), message(6, "b", OTHER)], now)), [[5]]);
}

/// What follows on another subject is read again: the subject may be paused by then.
#[test]
fn run_ends_before_another_subject() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let batch = vec![message(1, "job", OTHER), message(2, "job", REFUSED), message(3, "job", OTHER)];
    assert_eq!(ids(&lanes.start(batch, now)), [[1]]);
}

#[test]
fn one_subject_takes_a_part_of_the_lanes() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let runs = lanes.start(messages(REFUSED, 0..1_000), now);
    assert_eq!(runs.len(), MAX_LANES_OF_SUBJECT);
    assert!(lanes.has_full_subject() && lanes.left_out(now, false).subjects.is_empty());
    assert_eq!(lanes.left_out(now, true).subjects, [REFUSED], "what waits of it does not fill the batch");
    assert_eq!(lanes.start(messages(OTHER, 0..10), now).len(), 10);
    lanes.end(&runs[0].key, REFUSED, None, now);
    assert!(lanes.left_out(now, true).subjects.is_empty());
    assert_eq!(lanes.start(messages(REFUSED, 64..128), now).len(), 1);
}

#[test]
fn subject_that_fails_is_paused_and_probed_with_one_message_while_others_go_on() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let runs = lanes.start(messages(REFUSED, 0..64), now);
    end_all(&mut lanes, &runs, Some(&refusal()), now);
    assert_eq!(lanes.left_out(now, true).subjects, [REFUSED]);
    assert_eq!(lanes.start(messages(REFUSED, 64..128), now).len(), 0);
    assert_eq!(lanes.start(messages(OTHER, 0..10), now).len(), 10);
    // The probe is a message that was not tried yet, if there is one.
    let later = now + SUBJECT_PAUSE;
    assert_eq!(lanes.next_due(now), Some(later));
    assert!(lanes.left_out(later, true).subjects.is_empty());
    let probe = lanes.start(messages(REFUSED, 0..128), later);
    assert_eq!(ids(&probe), [[64]]);
    assert_eq!(lanes.left_out(later, true).subjects, [REFUSED], "there is one probe");
    lanes.end(&probe[0].key, REFUSED, Some(&refusal()), later);
    assert_eq!(lanes.left_out(later, true).subjects, [REFUSED]);
    // It is accepted again.
    let later = later + KEY_PAUSE;
    let probe = lanes.start(messages(REFUSED, 0..128), later);
    assert_eq!(probe.len(), 1);
    lanes.end(&probe[0].key, REFUSED, None, later);
    assert_eq!(lanes.start(messages(REFUSED, 128..192), later).len(), MAX_LANES_OF_SUBJECT);
}

/// A probe is one message, also of a key of which several wait.
#[test]
fn key_that_is_its_subject_is_tried_again_every_second() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let batch = || vec![message(1, REFUSED, REFUSED), message(2, REFUSED, REFUSED)];
    let runs = lanes.start(batch(), now);
    assert_eq!(ids(&runs), [[1, 2]]);
    end_all(&mut lanes, &runs, Some(&refusal()), now);
    assert_eq!(lanes.start(batch(), now + SUBJECT_PAUSE).len(), 0);
    let runs = lanes.start(batch(), now + KEY_PAUSE);
    assert_eq!(ids(&runs), [[1]]);
    end_all(&mut lanes, &runs, None, now + KEY_PAUSE);
    assert_eq!(ids(&lanes.start(batch(), now + KEY_PAUSE)), [[1, 2]]);
}

#[test]
fn message_that_is_too_large_pauses_only_its_key() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let runs = lanes.start(messages(REFUSED, 0..1), now);
    end_all(&mut lanes, &runs, Some(&too_large()), now);
    let left_out = lanes.left_out(now, true);
    assert_eq!((left_out.keys, left_out.subjects), (vec![format!("{REFUSED}/0")], Vec::new()));
    assert_eq!(lanes.start(messages(REFUSED, 0..10), now).len(), 9);
}

/// A message that is refused for another reason of its own holds its subject up once.
#[test]
fn key_that_fails_while_its_subject_is_accepted_is_paused_alone() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let odd = lanes.start(messages(REFUSED, 0..1), now);
    end_all(&mut lanes, &odd, Some(&refusal()), now);
    let probe = lanes.start(messages(REFUSED, 0..10), now + SUBJECT_PAUSE);
    assert_eq!(ids(&probe), [[1]]);
    end_all(&mut lanes, &probe, None, now + SUBJECT_PAUSE);
    let later = now + KEY_PAUSE;
    let odd = lanes.start(messages(REFUSED, 0..1), later);
    assert_eq!(ids(&odd), [[0]]);
    end_all(&mut lanes, &odd, Some(&refusal()), later);
    assert!(lanes.left_out(later, true).subjects.is_empty());
    assert_eq!(lanes.start(messages(REFUSED, 0..10), later).len(), 9);
}

/// However many subjects fail, there are lanes for others.
#[test]
fn probes_take_a_part_of_the_lanes() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let batch = |subjects: std::ops::Range<i64>| -> Vec<outbox::Model> {
        subjects.map(|id| message(id, &format!("key-{id}"), &format!("{REFUSED}.{id}"))).collect()
    };
    for start in [0, 200] {
        let runs = lanes.start(batch(start..start + 200), now);
        assert_eq!(runs.len(), 200);
        end_all(&mut lanes, &runs, Some(&refusal()), now);
    }
    let later = now + KEY_PAUSE;
    assert_eq!(lanes.start(batch(0..400), later).len(), MAX_PROBES);
    let left_out = lanes.left_out(later, true);
    assert_eq!(left_out.subjects.len(), 400, "what fails does not fill the batch");
    assert_eq!(lanes.start(messages(OTHER, 0..10), later).len(), 10);
    // What is not tried any more was published by another gateway.
    let end = later + FORGET_AFTER;
    assert!(lanes.left_out(end, true).subjects.is_empty());
}
