//! Claims a job: reads what earlier attempts recorded, decides, and appends the claim.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use chain::{Loss, Ownership, Tail};
use protocol::{ClaimDecision, History, Holder};
use subjects::{
    InstanceId, NodeId, Pattern, Subject,
    job::{Claimed, Engine, Entry, Job, MAX_ATTEMPTS, Record, Repeat},
    streams,
};
use time::OffsetDateTime;
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    chain::{JobChain, is_result, read_is_queued},
    journal::{JobJournal, SharedJournal},
};
use crate::Streams;

/// For how long a node leaves a job that it could not run to other nodes. Not for ever: they may lack what
/// the job needs.
const LEFT_TO_OTHERS_FOR: Duration = Duration::from_secs(120);
/// How often a claim is tried again because another entry was stored first.
const MAX_CONFLICTS: usize = 8;

/// The claimant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    pub(super) node: &'a NodeId,
    pub(super) instance: &'a InstanceId,
    pub(super) engine: Engine,
    pub(super) holder: Holder,
    pub(super) ack_wait: Duration,
    /// Whether other nodes take jobs of this queue.
    pub(super) has_others: bool,
}

/// The result of a claim.
#[derive(Debug)]
pub(super) enum Claim {
    /// This node owns the job and runs it.
    Ours(SharedJournal),
    /// This node owns the job and ends it: it must not be run (again).
    Unrunnable(SharedJournal, Unrunnable),
    /// The job has a result.
    Ended,
    /// Another queue message holds the job and is still queued.
    HeldByCopy,
    /// This or a later delivery of the same message already holds the job.
    Superseded,
    /// This node could not run the job a while ago. It is left to the others for now.
    LeftToOthers,
}

/// Why a job must not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unrunnable {
    /// It was started by a node that was lost, and must not be started twice.
    MayHaveRun { node: NodeId },
    /// Every attempt failed or lost its node.
    TooManyAttempts { why: Option<String> },
}

/// Earlier attempts of a job, according to its journal.
#[derive(Debug, Default, PartialEq, Eq)]
struct EarlierAttempts {
    /// How many claims there are.
    attempts: u32,
    /// The highest number that a claim says it has.
    highest: u32,
    /// Attempts that did not end with a hand-back of a node that was stopped.
    failed: u32,
    /// The node of an attempt that started the process, or may have, and did not release it.
    started_by: Option<NodeId>,
    last_why: Option<String>,
    /// Which node said last that it could not run the job, and when, if none has claimed it since.
    given_up: Option<(NodeId, OffsetDateTime)>,
}

pub(super) async fn claim(streams: &Streams, job: &Job, claimant: Claimant<'_>) -> Result<Claim, Loss> {
    for _ in 0..MAX_CONFLICTS {
        let looked_at = Instant::now();
        let found = streams.messages_under(streams::JOB_RUNS, &Pattern::JobRun(job.job_id)).await;
        if found.iter().any(|message| is_result(&message.subject)) {
            return Ok(Claim::Ended);
        }
        let (history, past) = read(&found);
        let copy_is_queued = match history.held_by_copy(claimant.holder) {
            Some(message) => read_is_queued(streams, job.job_id, message).await,
            None => false,
        };
        match history.decide(claimant.holder, copy_is_queued, u32::MAX) {
            ClaimDecision::WaitForCopy => return Ok(Claim::HeldByCopy),
            ClaimDecision::Superseded => return Ok(Claim::Superseded),
            ClaimDecision::Claim | ClaimDecision::Poisoned => {}
        }
        let unrunnable = past.unrunnable(job.spec.repeat);
        let now = OffsetDateTime::now_utc();
        if unrunnable.is_none() && claimant.has_others && past.was_given_up_by(claimant.node, now) {
            return Ok(Claim::LeftToOthers);
        }
        match append_claim(streams, job, claimant, &past, (found.as_slice(), looked_at)).await {
            Ok(journal) => {
                return Ok(match unrunnable {
                    Some(why) => Claim::Unrunnable(journal, why),
                    None => Claim::Ours(journal),
                });
            }
            Err(Loss::Fenced) => {}
            Err(loss) => return Err(loss),
        }
    }
    Ok(Claim::HeldByCopy)
}

async fn append_claim(
    streams: &Streams,
    job: &Job,
    claimant: Claimant<'_>,
    past: &EarlierAttempts,
    (found, looked_at): (&[StreamMessage], Instant),
) -> Result<SharedJournal, Loss> {
    let attempt = past.next_number();
    let end = found.last().map_or(0, |last| last.sequence);
    let bodies = found.iter().map(|message| message.payload.clone()).collect();
    let chain = JobChain { job: job.job_id, node: claimant.node.clone(), queued: claimant.holder.message };
    let mut tail = Tail::new(chain, bodies, end, looked_at);
    let claimed = Record::Claimed(Claimed {
        attempt,
        node: claimant.node.clone(),
        instance: claimant.instance.clone(),
        engine: claimant.engine,
        queued: claimant.holder.message,
        delivery: claimant.holder.delivery,
    });
    let sent = Instant::now();
    tail.append(streams, Bytes::from(Entry::new(claimed).encode())).await?;
    Ok(Arc::new(JobJournal {
        streams: streams.clone(),
        job: job.job_id,
        node: claimant.node.clone(),
        engine: claimant.engine,
        attempt,
        failures: past.failed,
        repeat: job.spec.repeat,
        tail: Mutex::new(tail),
        ownership: Ownership::new(sent, claimant.ack_wait),
        lost: CancellationToken::new(),
        is_started: AtomicBool::new(false),
    }))
}

/// Reads the entries of a journal.
fn read(found: &[StreamMessage]) -> (History, EarlierAttempts) {
    summarize(found.iter().filter_map(|message| read_entry(&message.subject, &message.payload)))
}

/// Returns an entry, or the node that wrote it if it cannot be read. `None` if it is not an entry.
fn read_entry(subject: &str, body: &[u8]) -> Option<Result<Entry, NodeId>> {
    let Ok(Subject::JobJournal(_, node)) = subject.parse() else { return None };
    Some(Entry::decode(body).map_err(|_| node))
}

/// An entry that cannot be read counts as a claim that made no progress, and may have started the process.
fn summarize(entries: impl Iterator<Item = Result<Entry, NodeId>>) -> (History, EarlierAttempts) {
    let (mut history, mut past) = (History::default(), EarlierAttempts::default());
    let (mut holder, mut started): (Option<NodeId>, Option<NodeId>) = (None, None);
    for entry in entries {
        let Entry { at, record, .. } = match entry {
            Ok(entry) => entry,
            Err(node) => {
                past.given_up = None;
                past.attempts += 1;
                past.failed += 1;
                past.started_by = started.replace(node.clone()).or(past.started_by);
                holder = Some(node);
                continue;
            }
        };
        match record {
            Record::Claimed(claimed) => {
                past.given_up = None;
                history.add_claim(Holder { message: claimed.queued, delivery: claimed.delivery });
                past.attempts += 1;
                past.highest = past.highest.max(claimed.attempt);
                past.failed += 1;
                // Also if the next node was lost before it could say so.
                past.started_by = started.take().or(past.started_by);
                holder = Some(claimed.node);
            }
            Record::Started => started = holder.clone(),
            Record::Released { why } => {
                history.add_release();
                if why.is_none() {
                    past.failed = past.failed.saturating_sub(1);
                }
                // The node's own clock, with which it compares it.
                past.given_up = holder.clone().filter(|_| why.is_some()).map(|node| (node, at.at()));
                past.last_why = why.or(past.last_why);
                started = None;
            }
            Record::Still => {}
        }
    }
    past.started_by = started.or(past.started_by);
    (history, past)
}

impl EarlierAttempts {
    /// Returns the number of the next attempt. A stream that has lost entries has fewer claims than there
    /// were attempts, and files are stored under the number of theirs.
    fn next_number(&self) -> u32 {
        self.attempts.max(self.highest).saturating_add(1)
    }

    fn unrunnable(&self, repeat: Repeat) -> Option<Unrunnable> {
        match self.started_by.clone() {
            Some(node) if repeat == Repeat::Never => Some(Unrunnable::MayHaveRun { node }),
            _ if self.failed >= MAX_ATTEMPTS => {
                Some(Unrunnable::TooManyAttempts { why: self.last_why.clone() })
            }
            _ => None,
        }
    }

    /// Returns whether a node could not run the job a while ago, and no other has tried since.
    fn was_given_up_by(&self, node: &NodeId, now: OffsetDateTime) -> bool {
        let given_up = self.given_up.as_ref().filter(|(by, _)| by == node);
        given_up.is_some_and(|(_, at)| (now - *at).unsigned_abs() < LEFT_TO_OTHERS_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(node: &str, delivery: u64) -> Record {
        Record::Claimed(Claimed {
            attempt: 1,
            node: node.parse().unwrap(),
            instance: "n-1".parse().unwrap(),
            engine: Engine::Bwrap,
            queued: 7,
            delivery,
        })
    }

    fn past(records: Vec<Record>) -> EarlierAttempts {
        summarize(records.into_iter().map(|record| Ok(Entry::new(record)))).1
    }

    #[test]
    fn job_that_may_have_run_is_not_run_again_unless_it_is_safe() {
        let lost = || past(vec![claimed("a", 1), Record::Started]);
        let node = "a".parse().unwrap();
        assert_eq!(lost().unrunnable(Repeat::Never), Some(Unrunnable::MayHaveRun { node }));
        assert_eq!(lost().unrunnable(Repeat::Safe), None);
        assert_eq!(past(vec![claimed("a", 1)]).unrunnable(Repeat::Never), None, "it was not started");
        let node = "a".parse().unwrap();
        let next_was_lost_too = past(vec![claimed("a", 1), Record::Started, claimed("b", 2)]);
        assert_eq!(next_was_lost_too.unrunnable(Repeat::Never), Some(Unrunnable::MayHaveRun { node }));
    }

    #[test]
    fn stopped_nodes_do_not_count_and_failing_ones_do() {
        let released = |why: Option<&str>| Record::Released { why: why.map(str::to_owned) };
        let stopped = (1..9).flat_map(|n| [claimed("a", n), Record::Started, released(None)]).collect();
        assert_eq!(past(stopped).unrunnable(Repeat::Safe), None);
        let failing = (1..4).flat_map(|n| [claimed("a", n), released(Some("no bwrap"))]).collect();
        let why = Some("no bwrap".to_owned());
        assert_eq!(past(failing).unrunnable(Repeat::Safe), Some(Unrunnable::TooManyAttempts { why }));
        let killed = (1..4).flat_map(|n| [claimed("a", n), Record::Started]).collect();
        let none = Some(Unrunnable::TooManyAttempts { why: None });
        assert_eq!(past(killed).unrunnable(Repeat::Safe), none);
    }

    #[test]
    fn node_that_could_not_run_a_job_leaves_it_to_others_for_a_while() {
        let released = |why: Option<&str>| Record::Released { why: why.map(str::to_owned) };
        let (a, b): (NodeId, NodeId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let now = OffsetDateTime::now_utc();
        let failed = past(vec![claimed("a", 1), released(Some("no bwrap"))]);
        assert!(failed.was_given_up_by(&a, now) && !failed.was_given_up_by(&b, now));
        assert!(!failed.was_given_up_by(&a, now + LEFT_TO_OTHERS_FOR + Duration::from_secs(1)));
        let stopped = past(vec![claimed("a", 1), Record::Started, released(None)]);
        assert!(!stopped.was_given_up_by(&a, now), "it could");
        let both = vec![claimed("a", 1), released(Some("no bwrap")), claimed("b", 2), released(Some("too"))];
        assert!(past(both.clone()).was_given_up_by(&b, now) && !past(both).was_given_up_by(&a, now));
    }

    #[test]
    fn released_start_may_be_repeated() {
        let records = vec![claimed("a", 1), Record::Started, Record::Released { why: None }, claimed("b", 2)];
        assert_eq!(past(records).started_by, None);
    }

    #[test]
    fn number_of_an_attempt_is_never_given_again() {
        assert_eq!(past(Vec::new()).next_number(), 1);
        assert_eq!(past(vec![claimed("a", 1), claimed("b", 2)]).next_number(), 3);
        let Record::Claimed(third) = claimed("a", 3) else { unreachable!("it is a claim") };
        let third = Record::Claimed(Claimed { attempt: 3, ..third });
        assert_eq!(past(vec![third]).next_number(), 4, "the stream has lost the claims before");
    }

    #[test]
    fn entry_that_cannot_be_read_counts_as_an_attempt_that_may_have_run() {
        let journal = |node: &str| format!("job.{}.{node}.journal", subjects::JobId::now());
        let unreadable = |node: &str| read_entry(&journal(node), b"{").unwrap();
        let readable = |record: Record| read_entry(&journal("a"), &Entry::new(record).encode()).unwrap();
        let claim = || readable(claimed("a", 1));
        let past = |entries: Vec<Result<Entry, NodeId>>| summarize(entries.into_iter()).1;
        assert_eq!(read_entry(&format!("job.{}.a.result", subjects::JobId::now()), b"{"), None);

        let node: NodeId = "b".parse().unwrap();
        let found = past(vec![claim(), unreadable("b")]);
        assert_eq!((found.attempts, found.failed, found.next_number()), (2, 2, 3));
        let lost = |node: &NodeId| Some(Unrunnable::MayHaveRun { node: node.clone() });
        assert_eq!(found.unrunnable(Repeat::Never), lost(&node));
        assert_eq!(found.unrunnable(Repeat::Safe), None);
        let claimed_since = past(vec![unreadable("b"), claim()]);
        assert_eq!(claimed_since.unrunnable(Repeat::Never), lost(&node));
        let released = readable(Record::Released { why: None });
        assert_eq!(past(vec![unreadable("b"), released]).unrunnable(Repeat::Never), None);
        let often = past(["a", "b", "a"].map(unreadable).into());
        assert_eq!(often.unrunnable(Repeat::Safe), Some(Unrunnable::TooManyAttempts { why: None }));
    }
}
