//! Claiming a handoff, and reading the state of one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::Chain;
use bytes::Bytes;
use chain::{Ownership, Tail};
use crash::reach;
use protocol::{ClaimDecision, Holder};
use subjects::{
    HandoffId, InstanceId, Kind, Pattern, Role, Subject, Work,
    journal::{Claimed, Entry, Origin, Record, Unreadable},
};
use tokio::{sync, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Journal, State,
    history::history_of,
    loss::Loss,
    prior::PriorRecords,
    queued::check_queued,
    run_chain::{self, RunChain},
};
use crate::{crash_points::Point, storage::Storage};

/// Limit on claim attempts that lose against another instance.
const MAX_TRIES: u32 = 16;

/// Bytes of the request that a claim holds, for people who look at the journal.
const MAX_REQUEST_BYTES: usize = 400;

/// A claim: the handoff, the instance and the delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: HandoffId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) holder: Holder,
    pub(crate) origin: Option<&'a Origin>,
    /// The work, unless the message could not be decoded.
    pub(crate) work: Option<&'a Work>,
    /// Handoffs that this one replays, oldest first. Their journals are reused.
    pub(crate) replays: &'a [HandoffId],
    pub(crate) ack_wait: Duration,
    /// Number of attempts without progress in a row that are allowed.
    pub(crate) max_attempts: u32,
}

/// Result of a claim.
#[derive(Debug)]
pub(crate) enum Claim {
    Ours(Arc<Journal>),
    /// The handoff is already answered.
    Answered,
    /// A copy, another message in the queue, holds the handoff.
    HeldByCopy,
    /// A later delivery of the same message holds the handoff.
    Superseded,
    /// The allowed number of attempts made no progress.
    Poisoned {
        attempts: u32,
    },
    /// The journal was written by a newer build and can be read only by one.
    NewerBuild {
        version: u32,
    },
    /// The journal cannot be read, so it is unknown what was done.
    Unreadable {
        why: String,
    },
    /// Its id belongs to a handoff of another user or project.
    ScopeMismatch,
    /// The handoff replays one that is still running.
    ReplayStillRunning {
        of: HandoffId,
    },
    /// The handoff replays one of another user or project.
    ReplayScopeMismatch {
        of: HandoffId,
    },
}

/// The entries of a journal.
#[derive(Default)]
struct Entries {
    read: Vec<Entry>,
    /// The encoded entries, as stored in the stream.
    bodies: Vec<Bytes>,
    /// Sequence of the last entry; 0 if there is none.
    sequence: u64,
}

/// The messages that the stream holds for a handoff.
enum StoredRun {
    Nothing,
    Answer,
    Entries(Entries),
    Unreadable(Unreadable),
}

/// Claims a handoff. From then on the server refuses appends of its former owner.
///
/// With `read_first` false the journal is not read unless the first append conflicts. That saves a read for a
/// handoff that has not been claimed before, and is safe for any.
pub(crate) async fn claim(
    storage: &Storage,
    claimant: Claimant<'_>,
    read_first: bool,
) -> Result<Claim, Loss> {
    let mut read_journal = read_first;
    for _ in 0..MAX_TRIES {
        let looked_at = Instant::now();
        let found = if read_journal {
            Box::pin(read_run(storage, claimant.kind.role(), claimant.id)).await
        } else {
            StoredRun::Nothing
        };
        let Entries { read: entries, bodies, sequence } = match found {
            StoredRun::Nothing => Entries::default(),
            StoredRun::Answer => return Ok(Claim::Answered),
            StoredRun::Unreadable(why) => return Ok(unreadable(why)),
            StoredRun::Entries(entries) => entries,
        };
        if origin_of(&entries)
            .is_some_and(|origin| !claimant.origin.is_some_and(|own| own.may_continue(origin)))
        {
            return Ok(Claim::ScopeMismatch);
        }
        let history = history_of(&entries);
        let copy_is_queued = match history.held_by_copy(claimant.holder) {
            Some(message) => {
                Box::pin(check_queued(&storage.streams, claimant.kind.role(), claimant.id, message)).await
            }
            None => false,
        };
        match history.decide(claimant.holder, copy_is_queued, claimant.max_attempts) {
            ClaimDecision::Claim => {}
            ClaimDecision::WaitForCopy => return Ok(Claim::HeldByCopy),
            ClaimDecision::Superseded => return Ok(Claim::Superseded),
            ClaimDecision::Poisoned => return Ok(Claim::Poisoned { attempts: history.attempts }),
        }
        let mut prior = PriorRecords::default();
        if !claimant.replays.is_empty()
            && let Some(instead) = Box::pin(read_replayed(storage, claimant, &mut prior)).await
        {
            return Ok(instead);
        }
        prior.add_own(entries);
        let (role, id, message) = (claimant.kind.role(), claimant.id, claimant.holder.message);
        let tail = Tail::new(RunChain { role, id, message }, bodies, sequence, looked_at);
        match append_claim(storage, claimant, prior, tail, history.attempts + 1).await {
            Ok(journal) => return Ok(Claim::Ours(Arc::new(journal))),
            Err(Loss::Fenced) => read_journal = true,
            Err(other) => return Err(other),
        }
    }
    Ok(Claim::HeldByCopy)
}

/// Appends the claim and returns the journal.
async fn append_claim(
    storage: &Storage,
    claimant: Claimant<'_>,
    prior: PriorRecords,
    mut tail: Tail<RunChain>,
    attempt: u32,
) -> Result<Journal, Loss> {
    reach(Point::BeforeClaim).await;
    let since = Instant::now();
    let claimed = Claimed {
        attempt,
        instance: claimant.instance.clone(),
        build: crate::VERSION.to_owned(),
        queued: claimant.holder.message,
        delivery: claimant.holder.delivery,
        origin: claimant.origin.cloned(),
        request: claimant.work.filter(|_| attempt == 1).map(|work| work.request_excerpt(MAX_REQUEST_BYTES)),
    };
    run_chain::append(storage, &mut tail, &Entry::new(vec![Record::Claimed(claimed)])).await?;
    reach(Point::Claimed).await;
    Ok(Journal {
        storage: storage.clone(),
        id: claimant.id,
        origin: claimant.replays.first().copied().unwrap_or(claimant.id),
        attempt,
        claim: Uuid::new_v4(),
        state: Mutex::new(State { prior, pending: Vec::new(), has_costly: false }),
        tail: sync::Mutex::new(tail),
        lost: CancellationToken::new(),
        loss: Mutex::new(None),
        ownership: Ownership::new(since, claimant.ack_wait),
    })
}

async fn read_run(storage: &Storage, role: Role, id: HandoffId) -> StoredRun {
    let runs = storage.streams.broker.layout.runs(role);
    let over = Pattern::Run(role, id);
    let Some(last) = storage.streams.last_on(runs, &over).await else {
        return StoredRun::Nothing;
    };
    let (sequence, journal) = (last.sequence, Subject::Journal(role, id));
    if last.subject.as_str() != journal.to_string() {
        return StoredRun::Answer;
    }
    match entries_up_to(storage, role, id, sequence).await {
        Ok(entries) => StoredRun::Entries(entries),
        Err(why) => StoredRun::Unreadable(why),
    }
}

async fn entries_up_to(
    storage: &Storage,
    role: Role,
    id: HandoffId,
    sequence: u64,
) -> Result<Entries, Unreadable> {
    let mut entries = Entries { sequence, ..Entries::default() };
    for body in bodies_up_to(storage, role, id, sequence).await {
        entries.read.push(read(storage, role, &body).await?);
        entries.bodies.push(body);
    }
    Ok(entries)
}

/// Reads the entries of a journal up to a place in the stream, as they are stored. Each try looks for the
/// last one: the stream may have lost it meanwhile. Then a claim after `sequence` is refused.
async fn bodies_up_to(storage: &Storage, role: Role, id: HandoffId, sequence: u64) -> Vec<Bytes> {
    let (jetstream, runs) = (&storage.streams.broker.jetstream, storage.streams.broker.layout.runs(role));
    let journal = Subject::Journal(role, id);
    let read = || async {
        let last = broker::last_on(jetstream, runs, &journal).await?;
        let up_to = last.map_or(0, |last| last.sequence.min(sequence));
        broker::all_on(jetstream, runs, &journal, up_to).await
    };
    storage.streams.read(runs, read).await.into_iter().map(|(_, body)| body).collect()
}

/// Decodes an entry, fetching its body from the object store if it was spilled.
async fn read(storage: &Storage, role: Role, body: &[u8]) -> Result<Entry, Unreadable> {
    let entry = Entry::decode(body)?;
    let Some(spilled) = &entry.spilled else { return Ok(entry) };
    match storage.fetch(role, &spilled.name).await {
        Ok(kept) => Entry::decode(&kept),
        Err(error) => Err(Unreadable::Malformed(Chain(&error).to_string())),
    }
}

fn unreadable(why: Unreadable) -> Claim {
    match why {
        Unreadable::Newer(version) => Claim::NewerBuild { version },
        Unreadable::Malformed(why) => Claim::Unreadable { why },
    }
}

/// Adds the records of the replayed handoffs to `prior`. Returns the result of the claim if they cannot be
/// used.
async fn read_replayed(storage: &Storage, claimant: Claimant<'_>, prior: &mut PriorRecords) -> Option<Claim> {
    let role = claimant.kind.role();
    let runs = storage.streams.broker.layout.runs(role);
    for id in claimant.replays {
        let journal = Subject::Journal(role, *id);
        let over = Pattern::Run(role, *id);
        let end = storage.streams.last_on(runs, &over).await;
        if end.is_some_and(|end| end.subject.as_str() == journal.to_string()) {
            return Some(Claim::ReplayStillRunning { of: *id });
        }
        // A handoff that was dead-lettered before it was claimed has no journal.
        let Some(last) = storage.streams.last_on(runs, &journal).await else {
            continue;
        };
        let entries = match entries_up_to(storage, role, *id, last.sequence).await {
            Ok(entries) => entries.read,
            Err(why) => return Some(unreadable(why)),
        };
        let may_continue = match (origin_of(&entries), claimant.origin) {
            (Some(origin), Some(own)) => own.may_continue(origin),
            (origin, own) => origin == own,
        };
        if !may_continue {
            return Some(Claim::ReplayScopeMismatch { of: *id });
        }
        prior.add_replayed(entries);
    }
    None
}

/// State of a handoff from the view of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Neither answered nor held by another message or delivery. Its journal ends at this sequence; 0 if it
    /// has none.
    Open(u64),
    Answered,
    /// A copy, another message in the queue, holds the handoff.
    HeldByCopy,
    /// A later delivery of the same message holds the handoff.
    Superseded,
}

/// Reads whether a delivery may dead-letter its handoff. The rule is the one for claims, except that poisoned
/// handoffs are open. Unreadable entries are ignored.
pub(crate) async fn read_run_state(storage: &Storage, kind: Kind, id: HandoffId, holder: Holder) -> RunState {
    let role = kind.role();
    let runs = storage.streams.broker.layout.runs(role);
    let over = Pattern::Run(role, id);
    let Some(last) = storage.streams.last_on(runs, &over).await else {
        return RunState::Open(0);
    };
    let (sequence, journal) = (last.sequence, Subject::Journal(role, id));
    if last.subject.as_str() != journal.to_string() {
        return RunState::Answered;
    }
    let bodies = bodies_up_to(storage, role, id, sequence).await;
    // Claims are never spilled, so nothing has to be fetched.
    let entries: Vec<Entry> = bodies.iter().filter_map(|body| Entry::decode(body).ok()).collect();
    let history = history_of(&entries);
    let copy_is_queued = match history.held_by_copy(holder) {
        Some(message) => check_queued(&storage.streams, role, id, message).await,
        None => false,
    };
    match history.decide(holder, copy_is_queued, u32::MAX) {
        ClaimDecision::Claim | ClaimDecision::Poisoned => RunState::Open(sequence),
        ClaimDecision::WaitForCopy => RunState::HeldByCopy,
        ClaimDecision::Superseded => RunState::Superseded,
    }
}

/// Reads all records of a journal up to a place in the stream. Those that cannot be read are left out.
pub(crate) async fn read_records(storage: &Storage, role: Role, id: HandoffId, sequence: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for body in bodies_up_to(storage, role, id, sequence).await {
        if let Ok(entry) = read(storage, role, &body).await {
            records.extend(entry.records);
        }
    }
    records
}

/// Returns the user and project of a journal. `None` if the build that wrote it did not record them.
pub(super) fn origin_of(entries: &[Entry]) -> Option<&Origin> {
    entries.iter().flat_map(|entry| &entry.records).find_map(|record| match record {
        Record::Claimed(claimed) => claimed.origin.as_ref(),
        _ => None,
    })
}

/// Reads the user and project of an earlier handoff. `None` if it was never claimed or its build did not
/// record them.
pub(crate) async fn read_origin(storage: &Storage, role: Role, id: HandoffId) -> Option<Origin> {
    let (jetstream, runs) = (&storage.streams.broker.jetstream, storage.streams.broker.layout.runs(role));
    let journal = Subject::Journal(role, id).to_string();
    let first = storage.streams.read(runs, || broker::next_on(jetstream, runs, &journal, 1)).await?;
    let entry = read(storage, role, &first.payload).await.ok()?;
    origin_of(std::slice::from_ref(&entry)).cloned()
}
