//! The throughput of the worker in handoffs per second, as a ratio to the bare loop.

use std::time::{Duration, Instant};

use async_nats::{
    HeaderMap,
    jetstream::{consumer::pull, stream},
};
use bytes::Bytes;
use futures_util::StreamExt;
use subjects::{Encoding, Kind, Role, Subject, headers, streams};
use testkit::{Goal, Nats, Orchestrator, Report, Worker, chat, cpu_of};

use super::bare::{self, AckMode};

const HANDOFFS: usize = 30_000;
const IN_FLIGHT: usize = 256;
const ROUNDS: usize = 11;

/// The measurements of draining one queue.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Handoffs per second.
    rate: f64,
    /// CPU time per handoff of the process under test, in microseconds.
    own: f64,
    /// CPU time per handoff of nats-server, in microseconds.
    server: f64,
}

/// Measures time and CPU time from its creation.
struct Stopwatch<'n> {
    worked_on_by: u32,
    nats: &'n Nats,
    started: Instant,
    own: f64,
    server: f64,
}

impl<'n> Stopwatch<'n> {
    fn start(worked_on_by: u32, nats: &'n Nats) -> Self {
        let (own, server) = (cpu_of(worked_on_by), nats.process().cpu());
        Self { worked_on_by, nats, started: Instant::now(), own, server }
    }

    fn stop(&self, count: usize) -> Round {
        let rate = count as f64 / self.started.elapsed().as_secs_f64();
        let each = 1_000_000.0 / count as f64;
        let own = (cpu_of(self.worked_on_by) - self.own) * each;
        Round { rate, own, server: (self.nats.process().cpu() - self.server) * each }
    }
}

pub(crate) async fn measure(report: &mut Report) {
    println!("throughput: {HANDOFFS} handoffs of 1 KiB, {IN_FLIGHT} in flight, {ROUNDS} rounds");
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let (mut plain, mut cheap, mut claiming, mut worker) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (claim, reply) = sizes(&nats, &orchestrator).await;
    println!("  the bare loops reply with {reply} bytes, the size of an answer; a claim has {claim}");
    let claim = Bytes::from(vec![b'x'; claim]);
    // Alternates within each round, so that a slow phase of the machine affects all equally. Loops that are
    // compared by a goal run one after the other, and there are many rounds, since the machine's speed
    // changes within seconds.
    for _ in 0..ROUNDS {
        cheap.push(bare_round(&nats, AckMode::Request, reply).await);
        claiming.push(bare_round(&nats, AckMode::Claim(claim.clone()), reply).await);
        plain.push(bare_round(&nats, AckMode::DoubleAck, reply).await);
        worker.push(worker_round(&nats, &orchestrator).await);
    }
    let ratios = |base: &[Round]| {
        worker.iter().zip(base).map(|(ours, theirs)| ours.rate / theirs.rate).collect::<Vec<_>>()
    };
    let (to_plain, to_cheap, to_claiming) = (ratios(&plain), ratios(&cheap), ratios(&claiming));
    for (name, rounds) in [
        ("bare loop, double_ack", &plain),
        ("bare loop, ack by request", &cheap),
        ("bare loop with a claim, compared and set", &claiming),
        ("worker", &worker),
    ] {
        let of_each = |what: fn(&Round) -> f64| rounds.iter().map(what).collect::<Vec<_>>();
        report.add(name, "/s", of_each(|round| round.rate), None);
        report.add(&format!("CPU of a handoff, {name}"), "us", of_each(|round| round.own), None);
        report.add(
            &format!("CPU of a handoff, its server, {name}"),
            "us",
            of_each(|round| round.server),
            None,
        );
    }
    // Each handoff needs three confirmed writes: its claim in the journal, its answer, its acknowledgement.
    report.add("worker to bare loop, double_ack", "x", to_plain, Some(Goal::AtLeast(0.55)));
    // For reference: a loop that acknowledges as cheaply as the worker and does nothing else.
    report.add("worker to bare loop, ack by request", "x", to_cheap, None);
    // The same writes as the worker and nothing else: the difference is the cost of the worker itself.
    report.add("worker to bare loop with a claim", "x", to_claiming, None);
}

/// Returns the sizes of a claim and an answer of the worker, so that the bare loop publishes the same sizes.
async fn sizes(nats: &Nats, orchestrator: &Orchestrator) -> (usize, usize) {
    let _worker = Worker::manager(nats).start().await;
    let id = orchestrator.publish(&chat(&"x".repeat(700))).await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, id).await;
    let runs = orchestrator.jetstream.get_stream(streams::RUNS).await.expect("there");
    let claim = runs
        .get_first_raw_message_by_subject(Subject::Journal(Role::ProjectManager, id).to_string(), 1)
        .await;
    (claim.expect("a claim").payload.len(), answer.encode(Encoding::Json).expect("a body").len())
}

/// Publishes `count` handoffs to `subject`.
pub(crate) async fn fill(orchestrator: &Orchestrator, subject: &str, count: usize) {
    let jobs = (0..count).map(|_| {
        let subject = subject.to_owned();
        let handoff = chat(&"x".repeat(700));
        let mut sent = HeaderMap::new();
        sent.insert(headers::MSG_ID, handoff.id.to_string());
        let body = handoff.encode(Encoding::Json).expect("a body");
        async move {
            let stored = orchestrator.jetstream.publish_with_headers(subject, sent, body.into()).await;
            stored.expect("sent").await.expect("stored");
        }
    });
    futures_util::stream::iter(jobs).buffer_unordered(500).collect::<Vec<()>>().await;
}

async fn bare_round(nats: &Nats, mode: AckMode, reply: usize) -> Round {
    let orchestrator = Orchestrator::connect(nats).await;
    let jetstream = &orchestrator.jetstream;
    let queue = stream::Config {
        name: "BENCH_IN".into(),
        subjects: vec!["bench.in".into()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..Default::default()
    };
    let queue = jetstream.create_stream(queue).await.expect("a queue");
    let replies = stream::Config {
        name: "BENCH_OUT".into(),
        subjects: vec!["bench.run.*.*".into()],
        ..Default::default()
    };
    jetstream.create_stream(replies).await.expect("a stream for replies");
    let consumer = queue
        .create_consumer(pull::Config {
            durable_name: Some("bare".into()),
            max_ack_pending: 100_000,
            ..Default::default()
        })
        .await
        .expect("a consumer");
    fill(&orchestrator, "bench.in", HANDOFFS).await;
    let reply = Bytes::from(vec![b'y'; reply]);
    let watch = Stopwatch::start(std::process::id(), nats);
    bare::drain(orchestrator.client.clone(), consumer, HANDOFFS, IN_FLIGHT, reply, mode).await;
    let round = watch.stop(HANDOFFS);
    for name in ["BENCH_IN", "BENCH_OUT"] {
        jetstream.delete_stream(name).await.expect("removed");
    }
    round
}

/// Measures from the first answer to the last acknowledgement. The queue is full before the worker starts.
async fn worker_round(nats: &Nats, orchestrator: &Orchestrator) -> Round {
    // The first start creates the streams.
    drop(Worker::manager(nats).start().await);
    orchestrator.jetstream.get_stream(streams::RUNS).await.expect("there").purge().await.expect("emptied");
    fill(orchestrator, &Subject::Handoff(Kind::Chat).to_string(), HANDOFFS).await;
    let worker = Worker::manager(nats).set("worker.concurrency.chat", IN_FLIGHT.to_string()).spawn();
    let mut first = None;
    loop {
        let left = usize::try_from(orchestrator.queued().await).expect("a count");
        let done = HANDOFFS - left;
        match &first {
            None if done > 0 => first = Some((Stopwatch::start(worker.process.id(), nats), done)),
            Some((watch, before)) if left == 0 => {
                let round = watch.stop(HANDOFFS - before);
                let pulls = worker.metric("pma_pulls_total{kind=\"chat\"}").await.unwrap_or(0.0);
                println!("  {:.0} handoffs to a pull request", HANDOFFS as f64 / pulls);
                drop(worker);
                return round;
            }
            _ => {}
        }
        // Not too often, since polling costs the server and happens only in this measurement.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
