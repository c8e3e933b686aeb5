use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_nats::Client;
use broker::{Broker, Chain, retry::Waits};
use futures_util::{FutureExt, StreamExt};
use subjects::{Kind, streams};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Delivery,
    delivery::{Clock, Terms},
    pull::{Arrival, Puller},
    returner::Returner,
};
use crate::{
    breaker::{Admission, Gate},
    telemetry::{Blocker, Health, Metrics},
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long a nearly full pool waits for more free slots before it asks.
const LINGER: Duration = Duration::from_millis(1);
/// How often is looked whether the handoff that finds out about an outage is still in work.
const TRIAL_CHECK: Duration = Duration::from_millis(100);
/// The longest that a drained subscription may take to tell its end.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// So long after the last message a server that was asked is taken to have sent what it was about to send.
const QUIET: Duration = Duration::from_millis(100);

/// The slots of one kind of handoff. Each kind has its own, so that a flood of one never delays another.
#[derive(Debug)]
pub(crate) struct Pool {
    kind: Kind,
    terms: Terms,
    client: Client,
    /// The stream that its handoffs are queued in.
    queue: &'static str,
    connections: watch::Receiver<u64>,
    slots: Arc<Semaphore>,
    size: usize,
    /// Closed while there is nobody to work with.
    gate: Gate,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    pauses: Waits,
    failing: bool,
    /// When the next request may be made; `None` while one is open.
    ask_after: Option<Instant>,
    turns: JoinSet<()>,
}

/// What the pools of an instance have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) returner: &'a Returner,
    pub(crate) gate: &'a Gate,
    pub(crate) health: &'a Arc<Health>,
    pub(crate) metrics: &'a Arc<Metrics>,
}

impl Pool {
    pub(crate) fn new(kind: Kind, size: NonZeroUsize, ack_wait: Duration, around: &Around<'_>) -> Self {
        let Around { broker, returner, gate, health, metrics } = around;
        let clock = Clock::start();
        Self {
            kind,
            terms: Terms {
                kind,
                ack_wait,
                clock,
                returner: (*returner).clone(),
                jetstream: broker.jetstream.clone(),
            },
            client: broker.client.clone(),
            queue: broker.layout.handoffs(kind.role()),
            connections: broker.connections.clone(),
            slots: Arc::new(Semaphore::new(size.get())),
            size: size.get(),
            gate: (*gate).clone(),
            health: Arc::clone(health),
            metrics: Arc::clone(metrics),
            pauses: Waits::forever(FIRST_PAUSE, LONGEST_PAUSE),
            failing: false,
            ask_after: None,
            turns: JoinSet::new(),
        }
    }

    /// Takes deliveries and runs `work` on each until `stop`; then lets running work finish for `grace`, or until
    /// told to `hurry`, and hands back the rest.
    pub(crate) async fn run<W, F>(
        mut self,
        work: W,
        stop: CancellationToken,
        hurry: CancellationToken,
        grace: Duration,
    ) where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(mut puller) = self.open(&stop).await {
            self.take(&mut puller, &work, &stop).await;
            self.close(puller).await;
        }
        self.finish(grace, &hurry).await;
    }

    async fn open(&mut self, stop: &CancellationToken) -> Option<Puller> {
        let mut waits = Waits::forever(FIRST_PAUSE, LONGEST_PAUSE);
        while !stop.is_cancelled() {
            match Puller::open(self.client.clone(), self.queue, streams::consumer_name(self.kind)).await {
                Ok(puller) => return Some(puller),
                Err(error) => {
                    self.on_failure(&Chain(&error).to_string());
                    tokio::time::sleep(waits.next_wait().unwrap_or(LONGEST_PAUSE)).await;
                }
            }
        }
        None
    }

    async fn take<W, F>(&mut self, puller: &mut Puller, work: &W, stop: &CancellationToken)
    where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.connections.mark_unchanged();
        loop {
            let asking = !puller.has_asked();
            let ask_after = asking.then(|| {
                *self.ask_after.get_or_insert_with(|| Instant::now() + linger(&self.slots, self.size))
            });
            let lost_at = puller.lost_at();
            let mut gate = self.gate.clone();
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: the change stays unseen until it is taken. An error means the client is gone.
                Ok(()) = self.connections.changed() => self.on_reconnect(puller, work).await,
                // Cancel-safe: it only looks. A request that is open when the gate closes would still bring work.
                () = gate.closed(), if !asking => self.on_reconnect(puller, work).await,
                // Cancel-safe: a finished task stays in the set until it is taken.
                Some(joined) = self.turns.join_next(), if !self.turns.is_empty() => self.on_joined(joined),
                // Cancel-safe: a message not yet yielded stays in the subscription.
                arrival = puller.next() => self.on_arrivals(arrival, puller, work).await,
                // Cancel-safe: sleeping only.
                () = at(lost_at), if lost_at.is_some() => {
                    puller.forget();
                    self.on_failure("a pull request was not answered");
                }
                // Cancel-safe: sleeping until an instant that stays the same, and a permit not taken stays with the
                // semaphore.
                slots = free_slots(&self.slots, self.size, &mut self.gate, ask_after), if asking => {
                    self.ask_after = None;
                    if let Some(slots) = slots {
                        self.ask(puller, slots).await;
                    }
                }
            }
        }
    }

    async fn ask(&mut self, puller: &mut Puller, slots: OwnedSemaphorePermit) {
        self.metrics.of(self.kind).pulls.inc();
        if let Err(error) = puller.ask(slots).await {
            self.on_failure(&Chain(&error).to_string());
        }
    }

    /// Takes one arrival and all that came with it: going around the loop for each would cost more than the message.
    async fn on_arrivals<W, F>(&mut self, first: Arrival, puller: &mut Puller, work: &W)
    where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut next = Some(first);
        while let Some(arrival) = next {
            if let Arrival::Closed = arrival {
                return self.on_closed(puller, work).await;
            }
            self.on_arrival(arrival, work);
            next = puller.next().now_or_never();
        }
    }

    fn on_arrival<W, F>(&mut self, arrival: Arrival, work: &W)
    where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        match arrival {
            Arrival::Message(message, slot) => {
                self.on_success();
                match Delivery::accept(&self.terms, message, slot) {
                    Some(delivery) => {
                        self.count(&delivery);
                        // Boxed before it is handed on: each step of a spawn would copy it whole.
                        self.turns.spawn(Box::pin(work(delivery)));
                    }
                    None => {
                        warn!(kind = %self.kind, "Message without an acknowledgement subject ignored.");
                    }
                }
            }
            Arrival::Unasked(message) => self.hand_back(message),
            Arrival::Expired => self.on_success(),
            Arrival::Failed(why) => self.on_failure(&why),
            // Only a subscription that is being drained ends, and that one is read elsewhere.
            Arrival::Closed => {}
        }
    }

    fn count(&self, delivery: &Delivery) {
        let metrics = self.metrics.of(self.kind);
        metrics.received.inc();
        if delivery.deliveries > 1 {
            metrics.redelivered.inc();
        }
    }

    /// There is no slot for it: dropped at once, so that the returner gives it to someone who has one.
    fn hand_back(&self, message: async_nats::Message) {
        drop(self.spare(message));
    }

    /// Not before this one's own request is gone, or it would come right back here.
    fn hand_back_later(&self, message: async_nats::Message) {
        if let Some(mut delivery) = self.spare(message) {
            delivery.return_after(2 * QUIET);
        }
    }

    fn spare(&self, message: async_nats::Message) -> Option<Delivery> {
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().ok()?;
        Delivery::accept(&self.terms, message, slot)
    }

    async fn on_reconnect<W, F>(&mut self, puller: &mut Puller, work: &W)
    where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        info!(kind = %self.kind, "Reconnected; pulling again.");
        match puller.reopen().await {
            Ok(mut old) => {
                let read_to_its_end = timeout(DRAIN_WITHIN, async {
                    // Its error says that there is no connection to drain, so nothing more comes.
                    if old.drain().await.is_ok() {
                        while let Some(message) = old.next().await {
                            let arrival = puller.late(message);
                            self.on_arrival(arrival, work);
                        }
                    }
                });
                if read_to_its_end.await.is_err() {
                    warn!(kind = %self.kind, "Previous pull subscription not drained in time.");
                }
                puller.forget();
            }
            Err(error) => self.on_failure(&Chain(&error).to_string()),
        }
    }

    /// The server or the client ended the subscription; without a pause this would be a busy loop.
    async fn on_closed<W, F>(&mut self, puller: &mut Puller, work: &W)
    where
        W: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_failure("the subscription was closed");
        tokio::time::sleep(LONGEST_PAUSE).await;
        self.on_reconnect(puller, work).await;
    }

    fn on_success(&mut self) {
        if self.failing {
            self.failing = false;
            self.pauses.reset();
            self.health.clear(Blocker::Pull(self.kind));
        }
    }

    fn on_failure(&mut self, why: &str) {
        self.metrics.of(self.kind).pull_errors.inc();
        self.health.block(Blocker::Pull(self.kind), format!("cannot pull {} handoffs: {why}", self.kind));
        let pause = self.pauses.next_wait().unwrap_or(LONGEST_PAUSE);
        warn!(kind = %self.kind, why, pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX), "Pull failed; retrying.");
        self.failing = true;
        self.ask_after = Some(Instant::now() + pause);
    }

    /// No more pulls. What is on its way to us is read and handed back, not lost until its time runs out.
    async fn close(&mut self, mut puller: Puller) {
        self.wait_for_quiet(&mut puller).await;
        puller.drain().await;
        let emptied = timeout(DRAIN_WITHIN, async {
            loop {
                match puller.next().await {
                    Arrival::Message(message, _) | Arrival::Unasked(message) => self.hand_back(message),
                    Arrival::Closed => break,
                    Arrival::Expired | Arrival::Failed(_) => {}
                }
            }
        });
        if emptied.await.is_err() {
            warn!(kind = %self.kind, "Pull subscription not drained in time.");
        }
    }

    /// A server that was just asked may be about to send. Unsubscribed before it has, what it sends goes nowhere and waits
    /// for its time to run out; its word that it heard of the end does not say that it had sent all.
    async fn wait_for_quiet(&self, puller: &mut Puller) {
        while puller.has_asked() {
            match timeout(QUIET, puller.next()).await {
                Ok(Arrival::Message(message, _) | Arrival::Unasked(message)) => self.hand_back_later(message),
                Ok(Arrival::Expired | Arrival::Failed(_)) => {}
                Ok(Arrival::Closed) | Err(_) => return,
            }
        }
    }

    /// Takes one finished task and all that finished with it.
    fn on_joined(&mut self, joined: Result<(), JoinError>) {
        let mut next = Some(joined);
        while let Some(joined) = next {
            if let Err(panic) = joined {
                // Its delivery was dropped unsettled, so it is already on its way back.
                error!(error = %panic, "Handoff task panicked.");
            }
            next = self.turns.try_join_next();
        }
    }

    async fn finish(&mut self, grace: Duration, hurry: &CancellationToken) {
        let until = Instant::now() + grace;
        let finished = async {
            while let Some(joined) = self.turns.join_next().await {
                self.on_joined(joined);
            }
        };
        tokio::select! {
            biased;
            // All three only wait: what is not joined here stays in the set.
            () = finished => {}
            () = hurry.cancelled() => {}
            () = sleep_until(until) => {}
        }
        if !self.turns.is_empty() {
            info!(kind = %self.kind, unfinished = self.turns.len(), of = self.size, "Grace period over; returning handoffs to the queue.");
            self.turns.shutdown().await;
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// How long to wait before asking. When the pool is nearly full it lingers a moment: at full load slots come free one
/// by one, and a pull request for each would cost the server more than the messages do.
fn linger(slots: &Semaphore, size: usize) -> Duration {
    if slots.available_permits() < size / 4 { LINGER } else { Duration::ZERO }
}

/// Waits until it is time to ask, work may be pulled and at least one slot is free, then takes all that are free, or one to
/// find out whether an outage is over.
async fn free_slots(
    slots: &Arc<Semaphore>,
    size: usize,
    gate: &mut Gate,
    ask_after: Option<Instant>,
) -> Option<OwnedSemaphorePermit> {
    at(ask_after).await;
    loop {
        gate.opened().await;
        let mut taken = Arc::clone(slots).acquire_owned().await.ok()?;
        let free = slots.available_permits();
        match gate.admits(size.saturating_sub(free + 1)) {
            Admission::All => {
                let more = u32::try_from(free).unwrap_or(u32::MAX);
                if more > 0
                    && let Some(Ok(rest)) = Arc::clone(slots).acquire_many_owned(more).now_or_never()
                {
                    taken.merge(rest);
                }
                return Some(taken);
            }
            Admission::One => return Some(taken),
            Admission::None => {
                drop(taken);
                tokio::time::sleep(TRIAL_CHECK).await;
            }
        }
    }
}
