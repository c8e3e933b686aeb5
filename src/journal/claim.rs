use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use broker::Chain;
use bytes::Bytes;
use protocol::{Holder, Turn};
use subjects::{
    HandoffId, InstanceId, Kind, Pattern, Role, Subject,
    journal::{Claimed, Entry, Origin, Record, Unreadable},
};
use tokio::{sync, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Journal, Notes,
    history::history_of,
    known::Known,
    queued::is_in_queue,
    tail::{Loss, Tail},
};
use crate::{
    crash_points::{Point, reach},
    storage::Storage,
};

/// Others may be faster, but not for ever.
const MAX_TRIES: u32 = 16;

/// What is claimed, by which instance, with which delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: HandoffId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) holder: Holder,
    pub(crate) origin: Option<&'a Origin>,
    /// Handoffs whose journals this one goes on from, oldest first.
    pub(crate) replays: &'a [HandoffId],
    pub(crate) ack_wait: Duration,
    /// Fruitless attempts in a row that are allowed.
    pub(crate) max_attempts: u32,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Claim {
    Ours(Arc<Journal>),
    /// It has its answer.
    Answered,
    /// Another message of the queue holds it and is still there.
    Held,
    /// A later delivery of the same message holds it.
    Superseded,
    /// This many attempts got nothing done.
    Poisoned {
        attempts: u32,
    },
    /// A newer build than this one has written to the journal; it can go on, we cannot.
    Newer {
        version: u32,
    },
    /// The journal cannot be read, so what was done is unknown.
    Torn {
        why: String,
    },
    /// Its id is that of a handoff of another user or project.
    Impostor,
    /// It replays a handoff that is still being worked on.
    StillRunning {
        of: HandoffId,
    },
    /// It is a replay of a handoff of another user or project.
    Foreign {
        of: HandoffId,
    },
}

/// A journal as it is stored.
#[derive(Default)]
struct Entries {
    read: Vec<Entry>,
    /// The same, as they stand in the stream.
    bodies: Vec<Bytes>,
    /// Of the last one; 0 for none.
    sequence: u64,
}

/// What the stream has of a handoff.
enum Found {
    Nothing,
    Answer,
    Entries(Entries),
    Unreadable(Unreadable),
}

/// Claims a handoff: from here on the appends of its former owner are refused. With `may_be_known` false the journal
/// is not read first; that is right for a handoff that cannot have been claimed before, and safe for any.
pub(crate) async fn claim(
    storage: &Storage,
    claimant: Claimant<'_>,
    may_be_known: bool,
) -> Result<Claim, Loss> {
    let mut look = may_be_known;
    for _ in 0..MAX_TRIES {
        let found = if look {
            Box::pin(find(storage, claimant.kind.role(), claimant.id)).await
        } else {
            Found::Nothing
        };
        let Entries { read: entries, bodies, sequence } = match found {
            Found::Nothing => Entries::default(),
            Found::Answer => return Ok(Claim::Answered),
            Found::Unreadable(why) => return Ok(unreadable(why)),
            Found::Entries(entries) => entries,
        };
        if origin_of(&entries).is_some_and(|origin| Some(origin) != claimant.origin) {
            return Ok(Claim::Impostor);
        }
        let history = history_of(&entries);
        let copy_is_queued = match history.held_by_copy(claimant.holder) {
            Some(message) => Box::pin(is_in_queue(storage, claimant.kind.role(), claimant.id, message)).await,
            None => false,
        };
        match history.turn(claimant.holder, copy_is_queued, claimant.max_attempts) {
            Turn::Take => {}
            Turn::WaitForCopy => return Ok(Claim::Held),
            Turn::Superseded => return Ok(Claim::Superseded),
            Turn::Poisoned => return Ok(Claim::Poisoned { attempts: history.attempts }),
        }
        let mut known = Known::default();
        if !claimant.replays.is_empty()
            && let Some(instead) = Box::pin(go_on_from(storage, claimant, &mut known)).await
        {
            return Ok(instead);
        }
        known.add_own(entries);
        let tail = Tail::behind(claimant.kind.role(), claimant.id, claimant.holder.message, bodies, sequence);
        match take(storage, claimant, known, tail, history.attempts + 1).await {
            Ok(journal) => return Ok(Claim::Ours(Arc::new(journal))),
            Err(Loss::Fenced) => look = true,
            Err(other) => return Err(other),
        }
    }
    Ok(Claim::Held)
}

async fn take(
    storage: &Storage,
    claimant: Claimant<'_>,
    known: Known,
    mut tail: Tail,
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
    };
    tail.append(storage, &Entry::new(vec![Record::Claimed(claimed)])).await?;
    reach(Point::Claimed).await;
    Ok(Journal {
        storage: storage.clone(),
        id: claimant.id,
        attempt,
        notes: Mutex::new(Notes { known, pending: Vec::new(), did_cost: false }),
        tail: sync::Mutex::new(tail),
        lost: CancellationToken::new(),
        loss: Mutex::new(None),
        sure_at: AtomicU64::new(0),
        confirmed_at: AtomicU64::new(0),
        since,
        sure_for: claimant.ack_wait * 2 / 3,
    })
}

async fn find(storage: &Storage, role: Role, id: HandoffId) -> Found {
    let (jetstream, runs) = (&storage.broker.jetstream, storage.broker.layout.runs(role));
    let over = Pattern::Run(role, id);
    let Some(last) = storage.read(runs, || broker::last_under(jetstream, runs, &over)).await else {
        return Found::Nothing;
    };
    let (sequence, journal) = (last.sequence, Subject::Journal(role, id));
    if last.subject.as_str() != journal.to_string() {
        return Found::Answer;
    }
    match entries_up_to(storage, role, id, sequence).await {
        Ok(entries) => Found::Entries(entries),
        Err(why) => Found::Unreadable(why),
    }
}

async fn entries_up_to(
    storage: &Storage,
    role: Role,
    id: HandoffId,
    sequence: u64,
) -> Result<Entries, Unreadable> {
    let (jetstream, runs) = (&storage.broker.jetstream, storage.broker.layout.runs(role));
    let journal = Subject::Journal(role, id);
    let mut entries = Entries { sequence, ..Entries::default() };
    for (_, body) in storage.read(runs, || broker::all_on(jetstream, runs, &journal, sequence)).await {
        entries.read.push(read(storage, role, &body).await?);
        entries.bodies.push(body);
    }
    Ok(entries)
}

/// Reads an entry, wherever it is kept.
async fn read(storage: &Storage, role: Role, body: &[u8]) -> Result<Entry, Unreadable> {
    let entry = Entry::decode(body)?;
    let Some(spilled) = &entry.spilled else { return Ok(entry) };
    match storage.fetch(role, &spilled.name).await {
        Ok(kept) => Entry::decode(&kept),
        Err(error) => Err(Unreadable::Torn(Chain(&error).to_string())),
    }
}

fn unreadable(why: Unreadable) -> Claim {
    match why {
        Unreadable::Newer(version) => Claim::Newer { version },
        Unreadable::Torn(why) => Claim::Torn { why },
    }
}

/// Reads what the handoffs did that this one replays. Returns what the claim comes to instead, if that cannot be used.
async fn go_on_from(storage: &Storage, claimant: Claimant<'_>, known: &mut Known) -> Option<Claim> {
    let (role, jetstream) = (claimant.kind.role(), &storage.broker.jetstream);
    let runs = storage.broker.layout.runs(role);
    for id in claimant.replays {
        let journal = Subject::Journal(role, *id);
        let over = Pattern::Run(role, *id);
        let end = storage.read(runs, || broker::last_under(jetstream, runs, &over)).await;
        if end.is_some_and(|end| end.subject.as_str() == journal.to_string()) {
            return Some(Claim::StillRunning { of: *id });
        }
        // A handoff that was given up before it was claimed has none.
        let Some(last) = storage.read(runs, || broker::last_on(jetstream, runs, &journal)).await else {
            continue;
        };
        let entries = match entries_up_to(storage, role, *id, last.sequence).await {
            Ok(entries) => entries.read,
            Err(why) => return Some(unreadable(why)),
        };
        if origin_of(&entries) != claimant.origin {
            return Some(Claim::Foreign { of: *id });
        }
        known.add_earlier(entries);
    }
    None
}

/// How far a handoff has come, and whether a delivery may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not answered, and not held by another; its journal ends at this sequence, 0 for none.
    Open(u64),
    Answered,
    /// Another message of the queue holds it and is still there.
    Held,
    /// A later delivery of the same message holds it.
    Superseded,
}

/// Finds out whether a delivery may give its handoff up, by the same rule by which it could claim it. Entries that cannot
/// be read do not count.
pub(crate) async fn standing(storage: &Storage, kind: Kind, id: HandoffId, holder: Holder) -> Standing {
    let (role, jetstream) = (kind.role(), &storage.broker.jetstream);
    let runs = storage.broker.layout.runs(role);
    let over = Pattern::Run(role, id);
    let Some(last) = storage.read(runs, || broker::last_under(jetstream, runs, &over)).await else {
        return Standing::Open(0);
    };
    let (sequence, journal) = (last.sequence, Subject::Journal(role, id));
    if last.subject.as_str() != journal.to_string() {
        return Standing::Answered;
    }
    let bodies = storage.read(runs, || broker::all_on(jetstream, runs, &journal, sequence)).await;
    // Claims are never spilled, so nothing has to be fetched.
    let entries: Vec<Entry> = bodies.iter().filter_map(|(_, body)| Entry::decode(body).ok()).collect();
    let history = history_of(&entries);
    let copy_is_queued = match history.held_by_copy(holder) {
        Some(message) => is_in_queue(storage, role, id, message).await,
        None => false,
    };
    match history.turn(holder, copy_is_queued, u32::MAX) {
        Turn::Take | Turn::Poisoned => Standing::Open(sequence),
        Turn::WaitForCopy => Standing::Held,
        Turn::Superseded => Standing::Superseded,
    }
}

/// On whose behalf a journal was begun. `None` when its build did not record it.
pub(super) fn origin_of(entries: &[Entry]) -> Option<&Origin> {
    entries.iter().flat_map(|entry| &entry.records).find_map(|record| match record {
        Record::Claimed(claimed) => claimed.origin.as_ref(),
        _ => None,
    })
}

/// Reads on whose behalf an earlier handoff was claimed. `None` when it never was, or its build did not record it.
pub(crate) async fn origin(storage: &Storage, role: Role, id: HandoffId) -> Option<Origin> {
    let (jetstream, runs) = (&storage.broker.jetstream, storage.broker.layout.runs(role));
    let journal = Subject::Journal(role, id).to_string();
    let first = storage.read(runs, || broker::next_on(jetstream, runs, &journal, 1)).await?;
    let entry = read(storage, role, &first.payload).await.ok()?;
    origin_of(std::slice::from_ref(&entry)).cloned()
}
