//! Against a real server: two nodes and the chain of one job.

mod lost_entries;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_nats::{HeaderMap, jetstream::stream::Config};
use broker::{Auth, Broker, Expect, Options, PublishError, Tls};
use bytes::Bytes;
use futures_util::FutureExt;
use subjects::{
    JobId, Pattern, Subject,
    streams::{self, Layout, Sizing},
};
use testkit::Nats;
use tokio::time::Instant;

use crate::{Committed, Description, Loss, Outages, Streams, Tail};

/// Counts failures.
#[derive(Clone, Debug, Default)]
struct Failures(Arc<AtomicU32>);

impl Outages for Failures {
    type Waiting = ();

    fn record_success(&self) {}

    fn record_failure(&self, _why: &str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn trip(&self, _why: &str) {}

    fn count_waiting(&self) {}
}

#[derive(Debug)]
struct JobChain {
    job: JobId,
    node: &'static str,
    is_queued: bool,
}

impl Description for JobChain {
    fn stream(&self, _layout: &Layout) -> &'static str {
        streams::JOB_RUNS
    }

    fn over(&self) -> Pattern {
        Pattern::JobRun(self.job)
    }

    fn subject(&self) -> Subject {
        Subject::JobJournal(self.job, self.node.parse().unwrap())
    }

    fn is_end(&self, subject: &str) -> bool {
        matches!(subject.parse(), Ok(Subject::JobResult(..)))
    }

    async fn check_queued<O: Outages>(&self, _streams: &Streams<O>) -> bool {
        self.is_queued
    }

    fn log_rewriting(&self, _stream: &str) {}
}

async fn connect(nats: &Nats) -> Streams<Failures> {
    let options = Options {
        url: nats.url(),
        name: "test".to_owned(),
        auth: Auth::None,
        tls: Tls::default(),
        inbox_prefix: None,
        layout: Layout::default(),
    };
    Streams::new(Arc::new(broker::connect(&options).await.unwrap()), Failures::default())
}

fn runs() -> Config {
    let second = std::time::Duration::from_secs(1);
    let sizing = Sizing { replicas: 1, ack_wait: second, dedupe_window: second };
    streams::of_jobs(sizing).into_iter().find(|stream| stream.name == streams::JOB_RUNS).unwrap()
}

async fn provision(broker: &Broker) {
    broker.jetstream.create_stream(runs()).await.unwrap();
}

async fn provisioned(nats: &Nats) -> Streams<Failures> {
    let streams = connect(nats).await;
    provision(&streams.broker).await;
    streams
}

fn tail(job: JobId, node: &'static str, end: u64) -> Tail<JobChain> {
    Tail::new(JobChain { job, node, is_queued: true }, Vec::new(), end, Instant::now())
}

async fn append(tail: &mut Tail<JobChain>, streams: &Streams<Failures>, text: &'static str) {
    tail.append(streams, Bytes::from_static(text.as_bytes())).await.unwrap();
}

/// Returns the messages of a chain as `<node> <text>`, and its end.
async fn stored(streams: &Streams<Failures>, job: JobId) -> (Vec<String>, u64) {
    let found = streams.messages_under(streams::JOB_RUNS, &Pattern::JobRun(job)).await;
    let texts = found.iter().map(|message| {
        let node = message.subject.split('.').nth(2).unwrap();
        format!("{node} {}", str::from_utf8(&message.payload).unwrap())
    });
    (texts.collect(), found.last().map_or(0, |last| last.sequence))
}

async fn commit(streams: &Streams<Failures>, job: JobId, node: &str, text: &str, after: u64) -> Committed {
    let subject = Subject::JobResult(job, node.parse().unwrap());
    let expect = Expect { over: Pattern::JobRun(job), sequence: after };
    let body = Bytes::from(text.to_owned());
    streams.commit(streams::JOB_RUNS, &subject, HeaderMap::new, body, &expect).await.unwrap()
}

async fn lose_everything(streams: &Streams<Failures>) {
    let stream = streams.broker.jetstream.get_stream(streams::JOB_RUNS).await.unwrap();
    stream.purge().await.unwrap();
}

#[tokio::test]
async fn one_node_writes_at_a_time() {
    let nats = Nats::start();
    let (streams, job) = (provisioned(&nats).await, JobId::now());
    let (mut first, mut second) = (tail(job, "n1", 0), tail(job, "n2", 0));
    append(&mut first, &streams, "claimed").await;
    let refused = second.append(&streams, Bytes::from_static(b"claimed too")).await;
    assert!(matches!(refused, Err(Loss::Fenced)), "{refused:?}");
    assert!(!first.check_overtaken(&streams).await.unwrap());

    let (found, end) = stored(&streams, job).await;
    assert_eq!(found, ["n1 claimed"]);
    append(&mut tail(job, "n2", end), &streams, "claimed then").await;
    assert!(first.check_overtaken(&streams).await.unwrap());
    let refused = first.append(&streams, Bytes::from_static(b"started")).await;
    assert!(matches!(refused, Err(Loss::Fenced)), "{refused:?}");
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed", "n2 claimed then"]);
}

#[tokio::test]
async fn append_that_was_dropped_halfway_does_not_fence_its_own_node() {
    let nats = Nats::start();
    let (streams, job) = (provisioned(&nats).await, JobId::now());
    let mut tail = tail(job, "n1", 0);
    append(&mut tail, &streams, "claimed").await;
    // Sent and perhaps stored, but the confirmation is dropped.
    assert!(tail.append(&streams, Bytes::from_static(b"started")).now_or_never().is_none());
    assert!(!tail.is_settled());
    let after = tail.close(&streams, || Bytes::from_static(b"still")).await.unwrap();
    let (mut found, end) = stored(&streams, job).await;
    assert_eq!(after, end);
    found.retain(|text| text != "n1 started");
    assert_eq!(found, ["n1 claimed", "n1 still"]);
    assert_eq!(tail.close(&streams, || unreachable!("it is settled")).await.unwrap(), end);
}

#[tokio::test]
async fn chain_that_the_stream_lost_is_written_again_while_its_message_is_queued() {
    let nats = Nats::start();
    let (streams, job) = (provisioned(&nats).await, JobId::now());
    let mut tail = tail(job, "n1", 0);
    append(&mut tail, &streams, "claimed").await;
    append(&mut tail, &streams, "started").await;
    lose_everything(&streams).await;
    append(&mut tail, &streams, "still").await;
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed", "n1 started", "n1 still"]);

    let chain = JobChain { job, node: "n1", is_queued: false };
    let mut settled = Tail::new(chain, Vec::new(), tail.sequence(), Instant::now());
    lose_everything(&streams).await;
    let refused = settled.append(&streams, Bytes::from_static(b"late")).await;
    assert!(matches!(refused, Err(Loss::Fenced)), "{refused:?}");
}

#[tokio::test]
async fn job_has_one_result() {
    let nats = Nats::start();
    let (streams, job) = (provisioned(&nats).await, JobId::now());
    let mut tail = tail(job, "n1", 0);
    append(&mut tail, &streams, "claimed").await;
    let refused = tail.close(&streams, Bytes::new).await.unwrap();
    assert!(!tail.check_ended(&streams).await.unwrap());
    // The stream loses the chain between two steps: the result follows what is written again.
    lose_everything(&streams).await;
    append(&mut self::tail(JobId::now(), "n1", 0), &streams, "another job").await;
    assert_eq!(commit(&streams, job, "n1", "done", refused).await, Committed::Fenced);
    let after = tail.close_after_conflict(&streams, refused).await.unwrap();
    assert_eq!(commit(&streams, job, "n1", "done", after).await, Committed::Ours("done".into()));

    assert!(tail.check_ended(&streams).await.unwrap());
    assert_eq!(commit(&streams, job, "n2", "done too", after).await, Committed::Fenced);
    let lost = tail.close_after_conflict(&streams, after).await;
    assert!(matches!(lost, Err(Loss::Fenced)), "{lost:?}");
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed", "n1 done"]);

    // A commit whose first try was stored without a confirmation conflicts with itself.
    let subject = Subject::JobResult(job, "n1".parse().unwrap());
    for (body, is_ours) in [("done", true), ("other", false)] {
        let conflict = Err(PublishError::Conflict { after_unconfirmed: true });
        let found = streams.resolve(streams::JOB_RUNS, &subject, body.into(), conflict).await.unwrap();
        assert_eq!(found == Committed::Ours(body.into()), is_ours, "{body}");
    }
}

#[tokio::test]
async fn append_waits_for_a_stream_that_is_missing() {
    let nats = Nats::start();
    let (streams, job) = (connect(&nats).await, JobId::now());
    let failures = Arc::clone(&streams.outages().0);
    let mut tail = tail(job, "n1", 0);
    let appending = append(&mut tail, &streams, "claimed");
    let providing = async {
        while failures.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        provision(&streams.broker).await;
    };
    tokio::join!(appending, providing);
    assert_eq!(stored(&streams, job).await.0, ["n1 claimed"]);
    let unused = Subject::JobJournal(JobId::now(), "n1".parse().unwrap());
    assert!(streams.check_available(&[streams::JOB_RUNS], &unused).await);
    assert!(!streams.check_available(&[streams::JOB_RUNS, streams::DEAD], &unused).await);
}
