//! Benchmarks of journal writes and reads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use broker::{Auth, Options, Tls};
use contract::{ToolContract, task};
use intake::Gate;
use protocol::Holder;
use subjects::{
    HandoffId, InstanceId, Kind,
    journal::{Returned, ToolOutcome},
    streams::Layout,
};

use crate::{
    journal::{self, Claim, Claimant, Journal},
    storage::Storage,
    telemetry::{Blocker, Breaker, Health},
};

/// Approximate size of the record that a step writes.
const RESULT_BYTES: usize = 1_024;

/// Writes and reads journals the way the worker does.
#[derive(Debug)]
pub struct Journals {
    storage: Storage,
    instance: InstanceId,
    deliveries: AtomicU64,
}

impl Journals {
    /// Connects to a server that already has the streams. Returns `None` if the connection fails.
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

    /// Writes a new journal of `records` records, one at a time. Returns how long each took to be stored, in
    /// milliseconds. `None` if the claim fails, as without the streams.
    pub async fn write(&self, records: usize) -> Option<(HandoffId, Vec<f64>)> {
        let id = HandoffId::now();
        let journal = self.claim(id, false).await?;
        let mut times = Vec::with_capacity(records);
        for number in 0..records {
            let call = journal.begin_call(task::Create::NAME, &number.to_string(), false);
            let returned = Returned {
                text: "x".repeat(RESULT_BYTES),
                structured: None,
                failed: false,
                truncated: false,
                tries: 1,
            };
            journal.record_result(call, ToolOutcome::Returned(returned), 1, true);
            let began = Instant::now();
            journal.write().await;
            times.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
        Some((id, times))
    }

    /// Claims a handoff with an existing journal. Returns how long that took, in milliseconds.
    pub async fn resume(&self, id: HandoffId) -> Option<f64> {
        let began = Instant::now();
        self.claim(id, true).await?;
        Some(began.elapsed().as_secs_f64() * 1_000.0)
    }

    async fn claim(&self, id: HandoffId, read_first: bool) -> Option<Arc<Journal>> {
        let claimant = Claimant {
            kind: Kind::Chat,
            id,
            instance: &self.instance,
            // Each claim is a later delivery of the same message, as after a crash.
            holder: Holder { message: 1, delivery: self.deliveries.fetch_add(1, Ordering::Relaxed) + 1 },
            origin: None,
            work: None,
            replays: &[],
            ack_wait: Duration::from_secs(30),
            max_attempts: u32::MAX,
        };
        match journal::claim(&self.storage, claimant, read_first).await {
            Ok(Claim::Ours(journal)) => Some(journal),
            _ => None,
        }
    }
}
