//! Three orchestrators fire two hundred schedules and are killed at random: each slot becomes what its
//! policies say, once, and each run is published once.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Stream;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::Value;
use testkit::{Nats, OrchestratorBuilder, OrchestratorProcess, Postgres, TestClock, Worker};

use super::{
    claims::two_gateways,
    night::{AUTUMN, Book, SECOND, answer, us},
    support::{Caller, orchestrator},
};

const ORCHESTRATORS: usize = 3;
/// All slots are at full minutes. The clock is set to this many seconds after one, and goes on from there.
const AFTER_SLOTS: i64 = 5 * SECOND;
/// Slots of one minute are decided about before they count as missed.
const LONGEST_LOOK: i64 = 50 * SECOND;
/// How long everything that is due may take to be published.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reads what was published, a message once.
struct Published {
    stream: Stream,
    read: u64,
}

impl Published {
    async fn connect(nats: &Nats) -> Self {
        // A worker creates the streams. It must not take the handoffs. Nothing answers them, so that they are
        // published again, which the queue must notice however long the clocks of the test say that it took.
        drop(Worker::manager(nats).set("nats.dedupe_window", "1h").start().await);
        let jetstream = async_nats::jetstream::new(nats.client().await);
        Self { stream: jetstream.get_stream(subjects::streams::HANDOFFS).await.unwrap(), read: 0 }
    }

    async fn count(&self) -> u64 {
        self.stream.get_info().await.unwrap().state.last_sequence
    }

    /// Returns the messages since the last call.
    async fn next(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        for sequence in self.read + 1..=self.count().await {
            let message = self.stream.get_raw_message(sequence).await.unwrap();
            assert_eq!(message.subject.as_str(), "pma.handoff.schedule");
            messages.push(serde_json::from_slice(&message.payload).unwrap());
            self.read = sequence;
        }
        messages
    }
}

/// W7: over the hour that comes twice, with an hour in which all orchestrators are away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrators_that_are_killed_fire_and_publish_each_slot_once() {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    println!("STORM_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (postgres, nats, clock) = (Postgres::start(), Nats::start(), TestClock::at(AUTUMN.begin));
    let gateways = two_gateways(&postgres, &clock).await;
    let secret = orchestrator(&gateways[0]).await;
    let callers: Vec<Caller<'_>> = gateways.iter().map(|gateway| Caller::new(gateway, &secret)).collect();
    let mut book = Book::create(&AUTUMN, &callers[0]).await;
    let mut published = Published::connect(&nats).await;
    let mut builders = Vec::new();
    for number in 0..ORCHESTRATORS {
        let builder = OrchestratorBuilder::new(&nats, &gateways[number % 2]).await;
        builders.push(builder.set("chat.sweep_every", "1s"));
    }
    let mut running: [Option<OrchestratorProcess>; ORCHESTRATORS] = [const { None }; ORCHESTRATORS];
    let (mut kills, mut now) = (0, us(AUTUMN.begin));
    let away = us(AUTUMN.away.0)..us(AUTUMN.away.1);
    while now < us(AUTUMN.end) {
        now += random.random_range(1..12) * 60 * SECOND;
        if away.contains(&now) {
            running = [const { None }; ORCHESTRATORS];
            now = away.end;
        }
        let mut shown = now + AFTER_SLOTS;
        clock.set_micros(shown);
        book.expect_at(shown);
        for (builder, orchestrator) in builders.iter().zip(&mut running) {
            if orchestrator.is_none() {
                *orchestrator = Some(builder.start().await);
            }
        }
        if random.random() {
            // What it was doing is done by the others, or was done and is found unsent.
            tokio::time::sleep(Duration::from_millis(random.random_range(0..100))).await;
            running[random.random_range(0..ORCHESTRATORS)] = None;
            kills += 1;
        }
        let since = Instant::now();
        while !(book.is_decided(&callers[0], shown).await
            && published.count().await >= book.handoffs() as u64)
        {
            let (count, wanted) = (published.count().await, book.handoffs());
            assert!(since.elapsed() < PATIENCE, "{count} of {wanted} handoffs are published");
            // Runs are published by others when they are a second old, by the clock of the gateways.
            shown = (shown + SECOND).min(now + LONGEST_LOOK);
            clock.set_micros(shown);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let mut ends = Vec::new();
        for handoff in published.next().await {
            let payload = &handoff["payload"];
            let text = |member: &str| payload[member].as_str().unwrap();
            if book.receive(text("schedule_id"), text("fired_at")) {
                ends.push(handoff["handoff_id"].as_str().unwrap().to_owned());
            }
        }
        answer(&callers, &ends).await;
    }
    println!("{kills} orchestrators killed");
    book.check(&callers[1]).await;
    assert!(kills > 5, "{kills}");
}
