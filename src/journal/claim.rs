use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use broker::Broker;
use subjects::{
    HandoffId, InstanceId, Kind, Pattern, Role, Subject,
    journal::{Claimed, Entry, Record, Unreadable},
};
use time::OffsetDateTime;
use tokio::{sync, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Journal, Notes,
    known::Known,
    tail::{Loss, Tail},
};
use crate::crash_points::{Point, reach};

/// Others may be faster, but not for ever.
const MOST_TRIES: u32 = 16;

/// Who takes up what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: HandoffId,
    pub(crate) instance: &'a InstanceId,
    /// The sequence of its message in the queue.
    pub(crate) queued: u64,
    pub(crate) ack_wait: Duration,
    /// Attempts in a row that may come to nothing.
    pub(crate) max_attempts: u32,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Claim {
    Ours(Arc<Journal>),
    /// It has its answer.
    Answered,
    /// Another copy of it was taken up a moment ago.
    Held,
    /// So many attempts in a row came to nothing.
    Poisoned {
        attempts: u32,
    },
    /// A newer build than this one has written to the journal; it can go on, we cannot.
    Newer {
        version: u32,
    },
    /// The journal cannot be read, so nobody can know what was done.
    Torn {
        why: String,
    },
}

/// What is there.
enum Found {
    Nothing,
    Answer,
    Entries { entries: Vec<Entry>, sequence: u64 },
    Unreadable(Unreadable),
}

/// Takes a handoff up: from here on whoever had it before is refused. A handoff that cannot have been taken up before
/// is claimed without a look.
pub(crate) async fn claim(
    broker: &Arc<Broker>,
    claimant: Claimant<'_>,
    may_be_known: bool,
) -> Result<Claim, Loss> {
    let mut look = may_be_known;
    for _ in 0..MOST_TRIES {
        let found = if look { Box::pin(find(broker, claimant)).await? } else { Found::Nothing };
        let (entries, sequence) = match found {
            Found::Nothing => (Vec::new(), 0),
            Found::Answer => return Ok(Claim::Answered),
            Found::Unreadable(Unreadable::Newer(version)) => {
                return Ok(Claim::Newer { version });
            }
            Found::Unreadable(Unreadable::Torn(why)) => return Ok(Claim::Torn { why }),
            Found::Entries { entries, sequence } => (entries, sequence),
        };
        let history = History::of(&entries);
        if history.in_vain >= claimant.max_attempts {
            return Ok(Claim::Poisoned { attempts: history.attempts });
        }
        if history.is_held_elsewhere(&claimant) {
            return Ok(Claim::Held);
        }
        match take(broker, claimant, entries, sequence, history.attempts + 1).await {
            Ok(journal) => return Ok(Claim::Ours(Arc::new(journal))),
            Err(Loss::Fenced) => look = true,
            Err(other) => return Err(other),
        }
    }
    Ok(Claim::Held)
}

async fn take(
    broker: &Arc<Broker>,
    claimant: Claimant<'_>,
    entries: Vec<Entry>,
    sequence: u64,
    attempt: u32,
) -> Result<Journal, Loss> {
    reach(Point::BeforeClaim).await;
    let (since, role) = (Instant::now(), claimant.kind.role());
    let mut tail = Tail::at(sequence);
    let claimed = Claimed {
        attempt,
        instance: claimant.instance.clone(),
        build: crate::VERSION.to_owned(),
        queued: claimant.queued,
    };
    tail.append(broker, role, claimant.id, &Entry::new(vec![Record::Claimed(claimed)])).await?;
    reach(Point::Claimed).await;
    Ok(Journal {
        broker: Arc::clone(broker),
        role,
        id: claimant.id,
        attempt,
        notes: Mutex::new(Notes {
            known: Known::from_entries(entries),
            pending: Vec::new(),
            did_cost: false,
        }),
        tail: sync::Mutex::new(tail),
        lost: CancellationToken::new(),
        loss: Mutex::new(None),
        sure_at: AtomicU64::new(0),
        since,
        sure_for: claimant.ack_wait * 2 / 3,
    })
}

async fn find(broker: &Broker, claimant: Claimant<'_>) -> Result<Found, Loss> {
    let (role, id, jetstream) = (claimant.kind.role(), claimant.id, &broker.jetstream);
    let runs = broker.layout.runs(role);
    let Some(last) = broker::last_under(jetstream, runs, &Pattern::Run(role, id)).await? else {
        return Ok(Found::Nothing);
    };
    let (sequence, journal) = (last.sequence, Subject::Journal(role, id));
    if last.subject.as_str() != journal.to_string() {
        return Ok(Found::Answer);
    }
    let mut entries = Vec::new();
    for (_, body) in broker::all_on(jetstream, runs, &journal, sequence).await? {
        match read(broker, role, &body).await? {
            Ok(entry) => entries.push(entry),
            Err(why) => return Ok(Found::Unreadable(why)),
        }
    }
    Ok(Found::Entries { entries, sequence })
}

/// An entry, wherever it is kept. That it cannot be fetched at the moment is not its fault.
async fn read(broker: &Broker, role: Role, body: &[u8]) -> Result<Result<Entry, Unreadable>, Loss> {
    let entry = Entry::decode(body);
    let Ok(Entry { spilled: Some(spilled), .. }) = &entry else { return Ok(entry) };
    match broker::fetch(broker, role, &spilled.name).await {
        Ok(kept) => Ok(Entry::decode(&kept)),
        Err(error) if error.is_missing() => Ok(Err(Unreadable::Torn(broker::Chain(&error).to_string()))),
        Err(error) => Err(error.into()),
    }
}

/// Who has had the handoff, and what came of it.
#[derive(Debug, Default)]
struct History {
    attempts: u32,
    /// The last attempts, as far as they came to nothing.
    in_vain: u32,
    last: Option<(Claimed, OffsetDateTime)>,
}

impl History {
    fn of(entries: &[Entry]) -> Self {
        let mut history = Self::default();
        for entry in entries {
            for record in &entry.records {
                match record {
                    Record::Claimed(claimed) => {
                        history.attempts = history.attempts.saturating_add(1);
                        history.in_vain = history.in_vain.saturating_add(1);
                        history.last = Some((claimed.clone(), entry.at.at()));
                    }
                    Record::Released => {
                        history.in_vain = history.in_vain.saturating_sub(1);
                        history.last = None;
                    }
                    _ => {}
                }
            }
            if entry.is_progress() {
                history.in_vain = 0;
            }
            if let Some((_, at)) = &mut history.last {
                *at = entry.at.at();
            }
        }
        history
    }

    /// By another message of the queue, which somebody may be working on.
    fn is_held_elsewhere(&self, claimant: &Claimant<'_>) -> bool {
        self.last.as_ref().is_some_and(|(claimed, at)| {
            claimed.queued != claimant.queued && OffsetDateTime::now_utc() - *at < claimant.ack_wait
        })
    }
}

#[cfg(test)]
mod tests {
    use subjects::journal::{CallId, ToolIntent};

    use super::*;

    fn claimed(attempt: u32, queued: u64) -> Entry {
        let instance = "worker-1".parse().unwrap();
        Entry::new(vec![Record::Claimed(Claimed { attempt, instance, build: "0".into(), queued })])
    }

    #[test]
    fn only_attempts_in_vain_count_against_a_handoff() {
        let call = CallId { number: 0, tool: "t".into(), arguments_hash: String::new() };
        let progress = Entry::new(vec![Record::ToolIntent(ToolIntent { call, key: "k".into() })]);
        let entries = [claimed(1, 7), claimed(2, 7), progress, claimed(3, 7), claimed(4, 7)];
        let history = History::of(&entries);
        assert_eq!((history.attempts, history.in_vain), (4, 2));
        let handed_back = [claimed(1, 7), Entry::new(vec![Record::Released]), claimed(2, 7)];
        assert_eq!(History::of(&handed_back).in_vain, 1);
    }

    #[test]
    fn a_copy_leaves_the_other_alone_for_a_while() {
        let instance: InstanceId = "worker-2".parse().unwrap();
        let of = |queued, ack_wait| Claimant {
            kind: Kind::Chat,
            id: "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap(),
            instance: &instance,
            queued,
            ack_wait,
            max_attempts: 5,
        };
        let history = History::of(&[claimed(1, 7)]);
        assert!(history.is_held_elsewhere(&of(8, Duration::from_secs(30))));
        assert!(!history.is_held_elsewhere(&of(7, Duration::from_secs(30))), "its own message");
        assert!(!history.is_held_elsewhere(&of(8, Duration::ZERO)), "long ago");
    }
}
