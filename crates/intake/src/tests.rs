//! Against a real server: pools that share their slots, and deliveries that are dropped.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::jetstream::{consumer, stream};
use broker::{Auth, Broker, Options, Tls};
use subjects::streams::Layout;
use testkit::{Nats, eventually};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;

const STREAM: &str = "WORK";
const ACK_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Letters;

impl Workload for Letters {
    type Kind = &'static str;
    type Journal = Released;
    type Health = Silent;
    type Metrics = Silent;
}

/// Counts how often it was released.
#[derive(Debug, Default)]
struct Released(AtomicUsize);

impl Releasable for Released {
    async fn release(&self) -> Release {
        self.0.fetch_add(1, Ordering::Relaxed);
        Release::HandBack
    }
}

#[derive(Debug, Default)]
struct Silent;

impl Health for Silent {
    type Blocker = ();
    const PULLED: &'static str = "letters";

    fn block(&self, (): (), _why: String) {}

    fn clear(&self, (): ()) {}
}

impl<K: fmt::Debug> Metrics<K> for Silent {
    fn count_pull(&self, _kind: &K) {}

    fn count_pull_failure(&self, _kind: &K) {}

    fn count_delivery(&self, _kind: &K, _is_redelivery: bool) {}

    fn count_returned(&self, _kind: &K) {}
}

/// Pools for the queues `a` and `b` of one program.
struct Program {
    broker: Broker,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    breakers: Breakers,
    gate: Gate,
}

impl Program {
    async fn start(nats: &Nats) -> Self {
        let options = Options {
            url: nats.url(),
            name: "test".to_owned(),
            auth: Auth::None,
            tls: Tls::default(),
            inbox_prefix: None,
            layout: Layout::default(),
        };
        let broker = broker::connect(&options).await.unwrap();
        let queue = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec!["work.*".to_owned()],
            retention: stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        let queue = broker.jetstream.create_stream(queue).await.unwrap();
        for kind in ["a", "b"] {
            let config = consumer::pull::Config {
                durable_name: Some(kind.to_owned()),
                filter_subject: format!("work.{kind}"),
                ack_wait: ACK_WAIT,
                ..Default::default()
            };
            queue.create_consumer(config).await.unwrap();
        }
        let (breakers, gate) = Gate::new();
        Self { broker, stop: CancellationToken::new(), tasks: JoinSet::new(), breakers, gate }
    }

    /// Runs a pool for each of these queues.
    fn run<F>(
        &mut self,
        slots: &Slots,
        kinds: &[&'static str],
        work: impl Fn(Delivery<Letters>) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let silent = Arc::new(Silent);
        let (returner, returning) = Returner::new(self.broker.client.clone(), Arc::clone(&silent));
        self.tasks.spawn(returning);
        let shared = PoolResources {
            broker: &self.broker,
            returner: &returner,
            gate: &self.gate,
            health: &silent,
            metrics: &silent,
        };
        for kind in kinds {
            let options = PoolOptions {
                kind: *kind,
                stream: STREAM.to_owned(),
                consumer: (*kind).to_owned(),
                slots: slots.clone(),
                ack_wait: ACK_WAIT,
                blocker: (),
            };
            let (pool, work, stop) = (Pool::new(options, &shared), work.clone(), self.stop.clone());
            self.tasks.spawn(async move { pool.run(work, stop, CancellationToken::new(), ACK_WAIT).await });
        }
    }

    async fn send(&self, kind: &str) {
        let sent = self.broker.jetstream.publish(format!("work.{kind}"), kind.to_owned().into()).await;
        sent.unwrap().await.unwrap();
    }

    async fn wait_until_empty(&self) {
        eventually("the queue is empty", async || {
            let queue = self.broker.jetstream.get_stream(STREAM).await.unwrap();
            (queue.cached_info().state.messages == 0).then_some(())
        })
        .await;
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

fn slots(size: usize, pools: usize) -> Slots {
    Slots::shared(size.try_into().unwrap(), pools.try_into().unwrap())
}

#[tokio::test]
async fn pools_that_share_a_slot_take_turns_and_never_work_at_once() {
    let nats = Nats::start();
    let mut program = Program::start(&nats).await;
    let (working, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    for kind in ["a", "a", "a", "b", "b", "b"] {
        program.send(kind).await;
    }
    let (client, seen_by_work) = (program.broker.client.clone(), Arc::clone(&seen));
    program.run(&slots(1, 2), &["a", "b"], move |delivery: Delivery<Letters>| {
        let (working, seen, client) = (Arc::clone(&working), Arc::clone(&seen_by_work), client.clone());
        async move {
            assert_eq!(working.fetch_add(1, Ordering::Relaxed), 0, "there is one slot");
            seen.lock().unwrap().push(delivery.kind);
            tokio::task::yield_now().await;
            working.fetch_sub(1, Ordering::Relaxed);
            delivery.settle(&client, Settlement::Acknowledge).await.unwrap();
        }
    });
    program.wait_until_empty().await;
    // Nothing keeps the slot from a queue that was empty for a while.
    program.send("b").await;
    program.wait_until_empty().await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 7);
    assert_ne!(seen[..3], ["a", "a", "a"], "the other queue waited");
    program.end().await;
}

#[tokio::test]
async fn nothing_is_pulled_while_there_is_a_hold() {
    let nats = Nats::start();
    let mut program = Program::start(&nats).await;
    let hold = program.breakers.hold();
    let (client, pulled) = (program.broker.client.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&pulled);
    program.run(&slots(2, 1), &["a"], move |delivery: Delivery<Letters>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let client = client.clone();
        async move { delivery.settle(&client, Settlement::Acknowledge).await.unwrap() }
    });
    program.send("a").await;
    let queue = program.broker.jetstream.get_stream(STREAM).await.unwrap();
    let mut consumer: consumer::PullConsumer = queue.get_consumer("a").await.unwrap();
    assert_eq!(consumer.info().await.unwrap().num_waiting, 0, "no pull request is open");
    assert_eq!(pulled.load(Ordering::Relaxed), 0);
    drop(hold);
    program.wait_until_empty().await;
    assert_eq!(pulled.load(Ordering::Relaxed), 1);
    program.end().await;
}

/// A trial may say nothing about the outage. Then the next message is one, also if another queue is empty and
/// reserves a slot with each of its requests.
#[tokio::test]
async fn queue_is_pulled_during_a_trial_while_another_queue_waits() {
    let nats = Nats::start();
    let mut program = Program::start(&nats).await;
    program.breakers.change(gate::State::Closed, gate::State::HalfOpen);
    let client = program.broker.client.clone();
    program.run(&slots(4, 2), &["a", "b"], move |delivery: Delivery<Letters>| {
        let client = client.clone();
        async move { delivery.settle(&client, Settlement::Acknowledge).await.unwrap() }
    });
    let began = Instant::now();
    for kind in ["a", "a", "b", "b", "a"] {
        program.send(kind).await;
        program.wait_until_empty().await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "a queue waited for another: {:?}", began.elapsed());
    program.end().await;
}

#[tokio::test]
async fn dropped_delivery_is_released_and_comes_back_at_once() {
    let nats = Nats::start();
    let mut program = Program::start(&nats).await;
    let (client, journal) = (program.broker.client.clone(), Arc::new(Released::default()));
    let attached = Arc::clone(&journal);
    program.run(&slots(2, 1), &["a"], move |delivery: Delivery<Letters>| {
        let (journal, client) = (Arc::clone(&attached), client.clone());
        async move {
            delivery.set_journal(&journal);
            match delivery.deliveries {
                1 => drop(delivery),
                _ => delivery.settle(&client, Settlement::Acknowledge).await.unwrap(),
            }
        }
    });
    program.send("a").await;
    program.wait_until_empty().await;
    assert_eq!(journal.0.load(Ordering::Relaxed), 1, "only the one that was dropped");
    program.end().await;
}
