//! Streams that were restored from a backup, created again or cut short while the writer of a chain lives.

use super::*;
use crate::ownership::TAIL_CONFIRMATION_LIFETIME;

const ENTRIES: [&str; 4] = ["claimed", "started", "called", "returned"];

/// Returns a chain whose entries are all stored.
async fn written(streams: &Streams<Failures>) -> (JobId, Tail<JobChain>) {
    let job = JobId::now();
    let mut tail = tail(job, "n1", 0);
    for entry in ENTRIES {
        append(&mut tail, streams, entry).await;
    }
    (job, tail)
}

fn of_first_node(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|entry| format!("n1 {entry}")).collect()
}

/// Deletes entries of a chain, given by their places in it.
async fn lose(streams: &Streams<Failures>, job: JobId, places: &[usize]) {
    let found = streams.messages_under(streams::JOB_RUNS, &Pattern::JobRun(job)).await;
    let stream = streams.broker.jetstream.get_stream(streams::JOB_RUNS).await.unwrap();
    for place in places {
        assert!(stream.delete_message(found[*place].sequence).await.unwrap());
    }
}

async fn lose_last(streams: &Streams<Failures>, job: JobId, count: usize) {
    let length = stored(streams, job).await.0.len();
    lose(streams, job, &(length - count..length).collect::<Vec<_>>()).await;
}

#[track_caller]
fn assert_fenced<T: std::fmt::Debug>(found: &Result<T, Loss>) {
    assert!(matches!(found, Err(Loss::Fenced)), "{found:?}");
}

#[tokio::test]
async fn lost_entries_are_written_again_once_and_in_order() {
    let nats = Nats::start();
    let streams = provisioned(&nats).await;
    for lost in 0..=ENTRIES.len() {
        let (job, mut tail) = written(&streams).await;
        lose_last(&streams, job, lost).await;
        assert!(!tail.check_overtaken(&streams).await.unwrap(), "{lost}");
        append(&mut tail, &streams, "next").await;
        let mut expected = of_first_node(&ENTRIES);
        expected.push("n1 next".to_owned());
        assert_eq!(stored(&streams, job).await, (expected.clone(), tail.sequence()), "{lost}");

        lose_last(&streams, job, lost).await;
        tail.settle(&streams).await.unwrap();
        assert!(tail.is_settled());
        assert_eq!(stored(&streams, job).await, (expected.clone(), tail.sequence()), "{lost}");

        let mut after = tail.close(&streams, || unreachable!("it is settled")).await.unwrap();
        lose_last(&streams, job, lost).await;
        if lost > 0 {
            assert_eq!(commit(&streams, job, "n1", "done", after).await, Committed::Fenced, "{lost}");
            after = tail.close_after_conflict(&streams, after).await.unwrap();
        }
        assert_eq!(commit(&streams, job, "n1", "done", after).await, Committed::Ours("done".into()));
        expected.push("n1 done".to_owned());
        assert_eq!(stored(&streams, job).await.0, expected, "{lost}");
    }
}

/// The stream gives what is written again the sequences of before, so that a result is refused and accepted
/// after the same sequence.
#[tokio::test]
async fn what_a_restored_stream_lacks_is_written_again() {
    let mut nats = Nats::start();
    let (streams, job) = (provisioned(&nats).await, JobId::now());
    let mut tail = tail(job, "n1", 0);
    append(&mut tail, &streams, ENTRIES[0]).await;
    let backup = nats.back_up(streams::JOB_RUNS);
    for entry in &ENTRIES[1..] {
        append(&mut tail, &streams, entry).await;
    }
    let refused = tail.close(&streams, || unreachable!("it is settled")).await.unwrap();
    nats.restore(streams::JOB_RUNS, &backup);
    assert_eq!(stored(&streams, job).await.0, of_first_node(&ENTRIES[..1]));
    assert_eq!(commit(&streams, job, "n1", "done", refused).await, Committed::Fenced);
    let after = tail.close_after_conflict(&streams, refused).await.unwrap();
    assert_eq!(after, refused);
    assert_eq!(commit(&streams, job, "n1", "done", after).await, Committed::Ours("done".into()));
    let mut expected = of_first_node(&ENTRIES);
    expected.push("n1 done".to_owned());
    assert_eq!(stored(&streams, job).await.0, expected);
}

/// The sequence at the end of the other chain is that of the own one.
#[tokio::test]
async fn owner_that_began_anew_is_not_taken_for_the_own_chain() {
    for is_empty in [false, true] {
        let mut nats = Nats::start();
        let (streams, job) = (provisioned(&nats).await, JobId::now());
        let mut first = tail(job, "n1", 0);
        append(&mut first, &streams, ENTRIES[0]).await;
        let backup = (!is_empty).then(|| nats.back_up(streams::JOB_RUNS));
        for entry in &ENTRIES[1..] {
            append(&mut first, &streams, entry).await;
        }
        match backup {
            Some(backup) => nats.restore(streams::JOB_RUNS, &backup),
            None => nats.lose_stream(runs()).await,
        }
        let (found, end) = stored(&streams, job).await;
        assert_eq!(found.is_empty(), is_empty);
        let mut second = tail(job, "n2", end);
        while second.sequence() < first.sequence() {
            append(&mut second, &streams, "claimed anew").await;
        }
        assert_eq!(second.sequence(), first.sequence());
        let before = stored(&streams, job).await;
        tokio::time::sleep(TAIL_CONFIRMATION_LIFETIME).await;
        assert!(first.check_overtaken(&streams).await.unwrap());
        assert_fenced(&first.append(&streams, Bytes::from_static(b"next")).await);
        assert_fenced(&first.close(&streams, Bytes::new).await);
        assert_fenced(&first.settle(&streams).await);
        let sequence = first.sequence();
        assert_fenced(&first.close_after_conflict(&streams, sequence).await);
        assert_eq!(stored(&streams, job).await, before);
        assert!(!second.check_overtaken(&streams).await.unwrap());
    }
}

#[tokio::test]
async fn of_an_owner_and_a_claim_the_first_to_write_wins() {
    let nats = Nats::start();
    let streams = provisioned(&nats).await;
    for lost in 1..=ENTRIES.len() {
        let (job, mut first) = written(&streams).await;
        lose_last(&streams, job, lost).await;
        let mut second = tail(job, "n2", stored(&streams, job).await.1);
        append(&mut first, &streams, "next").await;
        assert_fenced(&second.append(&streams, Bytes::from_static(b"claimed too")).await);

        let (job, mut first) = written(&streams).await;
        lose_last(&streams, job, lost).await;
        let mut second = tail(job, "n2", stored(&streams, job).await.1);
        append(&mut second, &streams, "claimed too").await;
        let before = stored(&streams, job).await;
        assert_fenced(&first.append(&streams, Bytes::from_static(b"next")).await);
        assert_eq!(stored(&streams, job).await, before, "{lost}");
        append(&mut second, &streams, "next too").await;
    }
}

#[tokio::test]
async fn chain_that_is_not_the_beginning_of_the_own_one_is_left_alone() {
    let nats = Nats::start();
    let streams = provisioned(&nats).await;
    let (job, mut tail) = written(&streams).await;
    lose(&streams, job, &[1, 3]).await;
    assert_fenced(&tail.append(&streams, Bytes::from_static(b"next")).await);
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed", "n1 called"]);

    // Another process has settled the message that the chain was claimed with.
    let job = JobId::now();
    let chain = JobChain { job, node: "n1", is_queued: false };
    let mut settled = Tail::new(chain, Vec::new(), 0, Instant::now());
    append(&mut settled, &streams, "claimed").await;
    append(&mut settled, &streams, "started").await;
    lose_last(&streams, job, 1).await;
    assert_fenced(&settled.append(&streams, Bytes::from_static(b"next")).await);
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed"]);
}

#[tokio::test]
async fn own_entries_are_written_again_after_those_of_another_node() {
    let nats = Nats::start();
    let streams = provisioned(&nats).await;
    let (job, _) = written(&streams).await;
    let mut second = tail(job, "n2", stored(&streams, job).await.1);
    append(&mut second, &streams, "claimed").await;
    append(&mut second, &streams, "started").await;
    lose_last(&streams, job, 1).await;
    append(&mut second, &streams, "next").await;
    let mut expected = of_first_node(&ENTRIES);
    expected.extend(["n2 claimed", "n2 started", "n2 next"].map(str::to_owned));
    assert_eq!(stored(&streams, job).await.0, expected);

    // Without any entry of its own, nothing says that the chain is still the one that it claimed.
    lose_last(&streams, job, 3).await;
    assert_fenced(&second.append(&streams, Bytes::from_static(b"late")).await);
    assert_eq!(stored(&streams, job).await.0, of_first_node(&ENTRIES));
}
