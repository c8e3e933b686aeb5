//! The loop that pulls messages of one queue for free slots.

use std::{sync::Arc, time::Duration};

use async_nats::Client;
use broker::{Broker, Chain, retry::RetryDelays};
use futures_util::{FutureExt, StreamExt};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    Slots,
    delivery::{Delivery, DeliveryContext},
    gate::{Gate, PullAllowance},
    pull::{Arrival, Puller},
    receipt::Clock,
    returner::Returner,
    workload::{Health, Metrics, Workload},
};

/// How long a pull request waits at the server. Short, so that a request lost with its connection is soon
/// repeated.
const REQUEST_EXPIRY: Duration = Duration::from_secs(10);
/// The same for pools that share their slots: meanwhile a request keeps slots from the others.
const SHARED_REQUEST_EXPIRY: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long a nearly full pool waits for more free slots before it sends a pull request.
const LINGER_TIME: Duration = Duration::from_millis(1);
/// How often the pool checks whether the trial message of a half-open breaker is still running.
const TRIAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for reading a drained subscription to its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// If nothing arrives for this long, the server is taken to have sent everything for an open pull request.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// Pulls the messages of one queue and runs work on them. Pools that do not share their slots do not delay
/// each other.
#[derive(Debug)]
pub struct Pool<W: Workload> {
    options: PoolOptions<W>,
    context: DeliveryContext<W>,
    client: Client,
    connections: watch::Receiver<u64>,
    /// Closed during an outage.
    gate: Gate,
    health: Arc<W::Health>,
    metrics: Arc<W::Metrics>,
    pauses: RetryDelays,
    failing: bool,
    /// When the next pull request may be sent; `None` while one is open.
    request_after: Option<Instant>,
    tasks: JoinSet<()>,
}

/// Configuration of a pool: its queue, and how many messages it pulls at a time.
#[derive(Debug)]
pub struct PoolOptions<W: Workload> {
    pub kind: W::Kind,
    /// The stream that holds the messages.
    pub stream: String,
    pub consumer: String,
    pub slots: Slots,
    /// How long the server waits for an acknowledgement or a heartbeat.
    pub ack_wait: Duration,
    /// The readiness condition that is unmet while pulls fail.
    pub blocker: <W::Health as Health>::Blocker,
}

/// Shared by all pools of a program.
#[derive(Debug)]
pub struct PoolResources<'a, W: Workload> {
    pub broker: &'a Broker,
    pub returner: &'a Returner<W>,
    pub gate: &'a Gate,
    pub health: &'a Arc<W::Health>,
    pub metrics: &'a Arc<W::Metrics>,
}

impl<W: Workload> Pool<W> {
    pub fn new(options: PoolOptions<W>, shared: &PoolResources<'_, W>) -> Self {
        let PoolResources { broker, returner, gate, health, metrics } = shared;
        Self {
            context: DeliveryContext {
                kind: options.kind.clone(),
                ack_wait: options.ack_wait,
                clock: Clock::start(),
                returner: (*returner).clone(),
                jetstream: broker.jetstream.clone(),
            },
            options,
            client: broker.client.clone(),
            connections: broker.connections.clone(),
            gate: (*gate).clone(),
            health: Arc::clone(health),
            metrics: Arc::clone(metrics),
            pauses: RetryDelays::forever(FIRST_PAUSE, MAX_PAUSE),
            failing: false,
            request_after: None,
            tasks: JoinSet::new(),
        }
    }

    /// Pulls messages and runs `work` on each until `stop`. Then waits for running work until it ends,
    /// `grace` has passed or `hurry` is cancelled, and hands back what is left.
    pub async fn run<R, F>(
        mut self,
        work: R,
        stop: CancellationToken,
        hurry: CancellationToken,
        grace: Duration,
    ) where
        R: Fn(Delivery<W>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(mut puller) = self.open(&stop).await {
            self.pull(&mut puller, &work, &stop).await;
            self.close(puller).await;
        }
        self.finish(grace, &hurry).await;
    }

    async fn open(&mut self, stop: &CancellationToken) -> Option<Puller> {
        let expiry = if self.options.slots.is_shared() { SHARED_REQUEST_EXPIRY } else { REQUEST_EXPIRY };
        let mut waits = RetryDelays::forever(FIRST_PAUSE, MAX_PAUSE);
        while !stop.is_cancelled() {
            let PoolOptions { stream, consumer, .. } = &self.options;
            match Puller::open(self.client.clone(), stream, consumer, expiry).await {
                Ok(puller) => return Some(puller),
                Err(error) => {
                    self.on_failure(&Chain(&error).to_string());
                    tokio::time::sleep(waits.next_delay().unwrap_or(MAX_PAUSE)).await;
                }
            }
        }
        None
    }

    async fn pull<R, F>(&mut self, puller: &mut Puller, work: &R, stop: &CancellationToken)
    where
        R: Fn(Delivery<W>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.connections.mark_unchanged();
        loop {
            let may_request = !puller.has_open_request();
            let request_after = may_request.then(|| {
                *self.request_after.get_or_insert_with(|| Instant::now() + linger(&self.options.slots))
            });
            let lost_at = puller.lost_at();
            // Only of this queue: what other queues reserve slots for is no work yet, and never may be.
            let running = self.tasks.len();
            let mut gate = self.gate.clone();
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: a change stays unseen until it is received. An error means that the client is
                // gone.
                Ok(()) = self.connections.changed() => {
                    info!(kind = %self.options.kind, "Reconnected; pulling again.");
                    self.reopen(puller, work).await;
                }
                // Cancel-safe: only observes. A pull request that is open when the gate closes would still
                // bring messages.
                () = gate.wait_closed(), if !may_request => {
                    info!(kind = %self.options.kind, "Pulling stopped; open request withdrawn.");
                    self.reopen(puller, work).await;
                }
                // Cancel-safe: a finished task stays in the set until it is joined.
                Some(joined) = self.tasks.join_next(), if !self.tasks.is_empty() => self.on_joined(joined),
                // Cancel-safe: a message not yet yielded stays in the subscription.
                arrival = puller.next() => self.on_arrivals(arrival, puller, work).await,
                // Cancel-safe: sleeping only.
                () = at(lost_at), if lost_at.is_some() => {
                    puller.forget_request();
                    self.on_failure("a pull request was not answered");
                }
                // Cancel-safe: sleeps until a fixed instant, and a permit that is not taken stays in the
                // semaphore.
                slots = free_slots(&self.options.slots, &mut self.gate, request_after, running),
                    if may_request =>
                {
                    self.request_after = None;
                    if let Some(slots) = slots {
                        self.request(puller, slots).await;
                    }
                }
            }
        }
    }

    async fn request(&mut self, puller: &mut Puller, slots: OwnedSemaphorePermit) {
        self.metrics.count_pull(&self.options.kind);
        if let Err(error) = puller.request(slots).await {
            self.on_failure(&Chain(&error).to_string());
        }
    }

    /// Handles one arrival and everything else that is ready: a pass through the `select!` for each message
    /// would cost more than the message itself.
    async fn on_arrivals<R, F>(&mut self, first: Arrival, puller: &mut Puller, work: &R)
    where
        R: Fn(Delivery<W>) -> F,
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

    fn on_arrival<R, F>(&mut self, arrival: Arrival, work: &R)
    where
        R: Fn(Delivery<W>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        match arrival {
            Arrival::Message(message, slot) => {
                self.on_success();
                match Delivery::accept(&self.context, message, slot) {
                    Some(delivery) => {
                        self.metrics.count_delivery(&delivery.kind, delivery.deliveries > 1);
                        // Boxed before it is spawned: each step of a spawn would copy the future.
                        self.tasks.spawn(Box::pin(work(delivery)));
                    }
                    None => {
                        let kind = &self.options.kind;
                        warn!(%kind, "Message without an acknowledgement subject ignored.");
                    }
                }
            }
            Arrival::Unrequested(message) => self.hand_back(message),
            Arrival::Expired => self.on_success(),
            Arrival::Failed(why) => self.on_failure(&why),
            // Only a drained subscription ends, and `on_arrivals` handles that.
            Arrival::Closed => {}
        }
    }

    /// Hands back a message that no slot is free for: the dropped delivery goes to the returner.
    fn hand_back(&self, message: async_nats::Message) {
        drop(self.accept_without_slot(message));
    }

    /// Hands back a message with a delay, so that it does not arrive again on the request that is still open.
    fn hand_back_later(&self, message: async_nats::Message) {
        if let Some(mut delivery) = self.accept_without_slot(message) {
            delivery.set_return_delay(2 * QUIET_PERIOD);
        }
    }

    fn accept_without_slot(&self, message: async_nats::Message) -> Option<Delivery<W>> {
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().ok()?;
        Delivery::accept(&self.context, message, slot)
    }

    /// Withdraws the open request and works on what it brought until then.
    async fn reopen<R, F>(&mut self, puller: &mut Puller, work: &R)
    where
        R: Fn(Delivery<W>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        match puller.reopen().await {
            Ok(mut old) => {
                let read_to_its_end = timeout(DRAIN_TIMEOUT, async {
                    // An error means that there is no connection to drain, so nothing more arrives.
                    if old.drain().await.is_ok() {
                        while let Some(message) = old.next().await {
                            let arrival = puller.classify_late(message);
                            self.on_arrival(arrival, work);
                        }
                    }
                });
                if read_to_its_end.await.is_err() {
                    warn!(kind = %self.options.kind, "Previous pull subscription not drained in time.");
                }
                puller.forget_request();
            }
            Err(error) => self.on_failure(&Chain(&error).to_string()),
        }
    }

    /// Reopens a subscription that the server or the client closed. Pauses first to avoid a busy loop.
    async fn on_closed<R, F>(&mut self, puller: &mut Puller, work: &R)
    where
        R: Fn(Delivery<W>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_failure("the subscription was closed");
        tokio::time::sleep(MAX_PAUSE).await;
        self.reopen(puller, work).await;
    }

    fn on_success(&mut self) {
        if self.failing {
            self.failing = false;
            self.pauses.reset();
            self.health.clear(self.options.blocker.clone());
        }
    }

    fn on_failure(&mut self, why: &str) {
        self.metrics.count_pull_failure(&self.options.kind);
        let (kind, pulled) = (&self.options.kind, W::Health::PULLED);
        self.health.block(self.options.blocker.clone(), format!("cannot pull {kind} {pulled}: {why}"));
        let pause = self.pauses.next_delay().unwrap_or(MAX_PAUSE);
        warn!(
            %kind,
            why,
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "Pull failed; retrying."
        );
        self.failing = true;
        self.request_after = Some(Instant::now() + pause);
    }

    /// Stops pulling. Messages that are already on their way are handed back instead of waiting for
    /// `ack_wait`.
    async fn close(&mut self, mut puller: Puller) {
        self.wait_for_quiet(&mut puller).await;
        puller.drain().await;
        let emptied = timeout(DRAIN_TIMEOUT, async {
            loop {
                match puller.next().await {
                    Arrival::Message(message, _) | Arrival::Unrequested(message) => self.hand_back(message),
                    Arrival::Closed => break,
                    Arrival::Expired | Arrival::Failed(_) => {}
                }
            }
        });
        if emptied.await.is_err() {
            warn!(kind = %self.options.kind, "Pull subscription not drained in time.");
        }
    }

    /// Waits until the server has sent everything for the open pull request.
    ///
    /// If the subscription were drained earlier, messages that are about to be sent would be lost until
    /// `ack_wait` expires: the confirmed unsubscribe does not imply that the consumer has sent them.
    async fn wait_for_quiet(&self, puller: &mut Puller) {
        while puller.has_open_request() {
            match timeout(QUIET_PERIOD, puller.next()).await {
                Ok(Arrival::Message(message, _) | Arrival::Unrequested(message)) => {
                    self.hand_back_later(message)
                }
                Ok(Arrival::Expired | Arrival::Failed(_)) => {}
                Ok(Arrival::Closed) | Err(_) => return,
            }
        }
    }

    /// Logs panics of one finished task and of all others that have finished.
    fn on_joined(&mut self, joined: Result<(), JoinError>) {
        let mut next = Some(joined);
        while let Some(joined) = next {
            if let Err(panic) = joined {
                // Its delivery was dropped unsettled, so the returner hands it back.
                error!(error = %panic, "Task of a message panicked.");
            }
            next = self.tasks.try_join_next();
        }
    }

    async fn finish(&mut self, grace: Duration, hurry: &CancellationToken) {
        let until = Instant::now() + grace;
        let finished = async {
            while let Some(joined) = self.tasks.join_next().await {
                self.on_joined(joined);
            }
        };
        tokio::select! {
            biased;
            // Cancel-safe: tasks that are not joined here stay in the set.
            () = finished => {}
            () = hurry.cancelled() => {}
            () = sleep_until(until) => {}
        }
        if !self.tasks.is_empty() {
            info!(
                kind = %self.options.kind,
                unfinished = self.tasks.len(),
                of = self.options.slots.size(),
                "Grace period over; handing {} back.",
                W::Health::PULLED
            );
            self.tasks.shutdown().await;
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Returns how long to wait before the next pull request. A nearly full pool waits a moment: under full load
/// slots become free one by one, and a pull request for each costs the server more than the messages.
fn linger(slots: &Slots) -> Duration {
    if slots.free() < slots.size() / 4 { LINGER_TIME } else { Duration::ZERO }
}

/// Waits for `request_after`, an open gate and a free slot, while `running` messages are worked on. Returns
/// all free slots that the pool may take, or a single one during a trial.
async fn free_slots(
    slots: &Slots,
    gate: &mut Gate,
    request_after: Option<Instant>,
    running: usize,
) -> Option<OwnedSemaphorePermit> {
    at(request_after).await;
    loop {
        gate.wait_open().await;
        let mut acquired = slots.acquire().await?;
        match gate.allowance(running) {
            PullAllowance::All => {
                slots.add_free(&mut acquired);
                return Some(acquired);
            }
            PullAllowance::One => return Some(acquired),
            PullAllowance::None => {
                drop(acquired);
                tokio::time::sleep(TRIAL_CHECK_INTERVAL).await;
            }
        }
    }
}
