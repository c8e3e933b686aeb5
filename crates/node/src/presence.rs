//! Reports the node's presence to the gateway, and does what the gateway replies.

use std::{sync::Arc, time::Duration};

use async_nats::Client;
use broker::Chain;
use bytes::Bytes;
use intake::{Breakers, Hold};
use subjects::{
    InstanceId, NodeId, PoolName, Subject, Timestamp, encode_json,
    node::{EngineStatus, NodeOrders, NodeStatus, PRESENCE_SECONDS},
};
use time::OffsetDateTime;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    cancels::RunningJobs,
    health::{Blocker, Health},
    orders::OrderFile,
    queue::OtherNodes,
};

/// After this many reports without an answer, the node follows the last orders that it received.
const MAX_UNANSWERED: u32 = 3;
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last report of a node that stops may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

/// The parts of a report that do not change while the node runs.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub(crate) node: NodeId,
    pub(crate) instance: InstanceId,
    pub(crate) pool: PoolName,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) engines: Vec<EngineStatus>,
    pub(crate) images: Vec<String>,
    pub(crate) slots: u32,
    pub(crate) started_at: Timestamp,
}

/// Reports the presence of the node.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) info: NodeInfo,
    pub(crate) client: Client,
    pub(crate) health: Arc<Health>,
    pub(crate) running: RunningJobs,
    pub(crate) breakers: Breakers,
    /// When what still runs is to be handed back.
    pub(crate) drain_by: watch::Sender<Option<OffsetDateTime>>,
    pub(crate) others: OtherNodes,
}

impl Presence {
    /// Reports until `stop`, and then once more. No job is taken before the first orders, unless the gateway
    /// does not answer: `until_ordered` is held so long. Then those in `kept` hold.
    pub(crate) async fn run(self, kept: OrderFile, until_ordered: Hold, stop: CancellationToken) {
        let mut ticks = interval(Duration::from_secs(PRESENCE_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders = Orders::new(kept, until_ordered);
        self.resume(&mut orders);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.report(&mut orders).await,
            }
        }
        drop(timeout(FAREWELL_TIMEOUT, self.ask()).await);
    }

    /// Starts with the orders that an earlier process of this node received.
    fn resume(&self, orders: &mut Orders) {
        let found = match orders.file.read() {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => {
                // They may have been to take no jobs.
                warn!(error = %Chain(&error), "Orders file unreadable; cordoned until the gateway answers.");
                NodeOrders { cordoned: true, ..NodeOrders::default() }
            }
        };
        if found.cordoned {
            info!("Orders of an earlier process stay in force until the gateway answers.");
        }
        self.obey(orders, &found);
    }

    async fn report(&self, orders: &mut Orders) {
        match timeout(REPLY_TIMEOUT, self.ask()).await {
            Ok(Some(found)) => {
                orders.keep(&found);
                self.obey(orders, &found);
                orders.until_ordered = None;
            }
            // Without a gateway the last orders stay in force.
            Ok(None) | Err(_) => {
                debug!("Presence not answered; keeping the last orders.");
                orders.unanswered += 1;
                if orders.unanswered >= MAX_UNANSWERED && orders.until_ordered.take().is_some() {
                    info!("Gateway does not answer; the last orders stay in force.");
                }
            }
        }
    }

    async fn ask(&self) -> Option<NodeOrders> {
        let subject = Subject::NodePresence(self.info.node.clone());
        let reply = self.client.request(&subject, Bytes::from(encode_json(&self.status()))).await.ok()?;
        serde_json::from_slice(&reply.payload).ok()
    }

    fn obey(&self, orders: &mut Orders, found: &NodeOrders) {
        if found.cordoned != orders.cordon.is_some() {
            orders.cordon = found.cordoned.then(|| self.breakers.hold());
            if found.cordoned {
                info!("Node cordoned: it takes no more jobs.");
                self.health.set(Blocker::Cordoned, "cordoned by an administrator");
            } else {
                info!("Node uncordoned.");
                self.health.unset(&Blocker::Cordoned);
            }
        }
        if found.duplicate != orders.duplicate.is_some() {
            orders.duplicate = found.duplicate.then(|| self.breakers.hold());
            if found.duplicate {
                let why = format!(
                    "another process reports as node {}; give one of them another node.id",
                    self.info.node
                );
                warn!("{why}. This one takes no jobs.");
                self.health.set(Blocker::Duplicate, why);
            } else {
                self.health.unset(&Blocker::Duplicate);
            }
        }
        self.others.set(found.others);
        let drain_by = found.drain_by.as_ref().map(Timestamp::at);
        self.drain_by.send_if_modified(|known| {
            let changed = *known != drain_by;
            *known = drain_by;
            changed
        });
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.info.node.clone(),
            instance: self.info.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pool: self.info.pool.clone(),
            labels: self.info.labels.clone(),
            state: self.health.state(),
            reasons: self.health.reasons(),
            engines: self.info.engines.clone(),
            images: self.info.images.clone(),
            slots: self.info.slots,
            running: self.running.ids(),
            started_at: self.info.started_at.clone(),
        }
    }
}

/// The orders in force. Nothing is pulled while one of the holds is set.
#[derive(Debug)]
struct Orders {
    /// Keeps them for the next process.
    file: OrderFile,
    is_not_kept: bool,
    /// Held until the first orders are known.
    until_ordered: Option<Hold>,
    unanswered: u32,
    cordon: Option<Hold>,
    duplicate: Option<Hold>,
}

impl Orders {
    fn new(file: OrderFile, until_ordered: Hold) -> Self {
        let until_ordered = Some(until_ordered);
        Self { file, is_not_kept: false, until_ordered, unanswered: 0, cordon: None, duplicate: None }
    }

    /// Keeps what the gateway said for the next process. Tried again with the next report.
    fn keep(&mut self, found: &NodeOrders) {
        match self.file.keep(found) {
            Ok(()) => self.is_not_kept = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_not_kept, true) {
                    warn!(error = %Chain(&error), "Orders not stored for the next start; retrying.");
                }
            }
        }
    }
}

/// Waits until what still runs is to be handed back.
pub(crate) async fn wait_for_drain(mut drain_by: watch::Receiver<Option<OffsetDateTime>>) {
    loop {
        let due = *drain_by.borrow_and_update();
        let wait = due.map(|due| Duration::try_from(due - OffsetDateTime::now_utc()).unwrap_or_default());
        tokio::select! {
            () = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            } => return,
            changed = drain_by.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }
}
