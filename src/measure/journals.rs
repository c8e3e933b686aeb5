use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use broker::{Auth, Options, Tls};
use protocol::Holder;
use subjects::{
    HandoffId, InstanceId, Kind,
    journal::{Returned, ToolOutcome},
    streams::Layout,
};

use crate::{
    breaker::{Breaker, Gate},
    journal::{self, Claim, Claimant, Journal},
    storage::Storage,
    telemetry::{Blocker, Health},
};

/// What a step writes, about.
const RESULT_BYTES: usize = 1_024;

/// Journals, written and read as the worker does it.
#[derive(Debug)]
pub struct Journals {
    storage: Storage,
    instance: InstanceId,
    deliveries: AtomicU64,
}

impl Journals {
    /// The streams have to be there. `None` when they, or the server, are not.
    pub async fn connect(url: &str) -> Option<Self> {
        let options = Options {
            url: url.to_owned(),
            name: "bench".to_owned(),
            auth: Auth::None,
            tls: Tls::default(),
            inbox_prefix: None,
            layout: Layout::default(),
        };
        let broker = broker::connect(&options).await.ok()?;
        let (breakers, _) = Gate::new();
        let breaker = Breaker::new(Blocker::Storage, breakers, Arc::new(Health::starting()));
        Some(Self {
            storage: Storage::new(Arc::new(broker), breaker, Duration::MAX),
            instance: "bench".parse().ok()?,
            deliveries: AtomicU64::new(0),
        })
    }

    /// A new journal of so many records, one at a time; gives how long each took to be stored, in milliseconds.
    pub async fn write(&self, records: usize) -> Option<(HandoffId, Vec<f64>)> {
        let id = HandoffId::now();
        let journal = self.claim(id, false).await?;
        let mut times = Vec::with_capacity(records);
        for number in 0..records {
            let call = journal.call("db.task.create", number.to_string(), false);
            let returned = Returned {
                text: "x".repeat(RESULT_BYTES),
                structured: None,
                failed: false,
                truncated: false,
                tries: 1,
            };
            journal.returned(call, ToolOutcome::Returned(returned), 1, true);
            let began = Instant::now();
            journal.write().await;
            times.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
        Some((id, times))
    }

    /// How long it takes to take a handoff up where another left it, in milliseconds.
    pub async fn resume(&self, id: HandoffId) -> Option<f64> {
        let began = Instant::now();
        self.claim(id, true).await?;
        Some(began.elapsed().as_secs_f64() * 1_000.0)
    }

    async fn claim(&self, id: HandoffId, may_be_known: bool) -> Option<Arc<Journal>> {
        let claimant = Claimant {
            kind: Kind::Chat,
            id,
            instance: &self.instance,
            // Each claim is a later delivery of the same message, as after a death.
            holder: Holder { message: 1, delivery: self.deliveries.fetch_add(1, Ordering::Relaxed) + 1 },
            origin: None,
            replays: &[],
            ack_wait: Duration::from_secs(30),
            max_attempts: u32::MAX,
        };
        match journal::claim(&self.storage, claimant, may_be_known).await {
            Ok(Claim::Ours(journal)) => Some(journal),
            _ => None,
        }
    }
}
