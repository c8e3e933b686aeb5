use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use super::Origin;
use crate::audit::{Decision, Record, Status};

/// Origins that are counted by themselves; the others are counted together.
const MAX_COUNTED: usize = 10_000;
const OTHERS: &str = "other-addresses";
const UNAUTHENTICATED: &str = "unauthenticated";

/// Refused requests, by where they came from and which token of ours they showed, if it was one.
#[derive(Debug)]
pub(super) struct Tally {
    every: i64,
    counts: Mutex<BTreeMap<Key, Count>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// `None` for all that are not counted by themselves.
    origin: Option<Origin>,
    token: Option<String>,
}

#[derive(Debug)]
struct Count {
    /// What a row about them looks like.
    like: Record,
    /// When the present interval began.
    since: i64,
    /// Refused since then, without those that have a row of their own.
    refused: u64,
    /// Reasons of which one was written.
    written: Vec<&'static str>,
}

impl Tally {
    pub(super) fn new(every: Duration) -> Self {
        let every = i64::try_from(every.as_micros()).unwrap_or(i64::MAX);
        Self { every, counts: Mutex::default() }
    }

    /// Counts a refused request. Returns its row if it is the first of its kind from there.
    pub(super) fn note(
        &self,
        origin: Origin,
        mut record: Record,
        error_type: &'static str,
        now: i64,
    ) -> Option<Record> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = Key { origin: Some(origin), token: record.subject.clone() };
        if !counts.contains_key(&key) && counts.len() >= MAX_COUNTED {
            key = Key { origin: None, token: None };
        }
        let subject = key.origin.map_or_else(|| OTHERS.to_owned(), |origin| origin.to_string());
        record.subject.get_or_insert(subject);
        record.end(Decision::Deny, Status::Denied, Some(error_type), now);
        let count = counts.entry(key).or_insert_with(|| Count {
            like: record.clone(),
            since: now,
            refused: 0,
            written: Vec::new(),
        });
        if count.written.contains(&error_type) {
            count.refused += 1;
            return None;
        }
        count.written.push(error_type);
        Some(record)
    }

    /// The rows of intervals that are over. One that was quiet for a whole interval is forgotten.
    pub(super) fn due(&self, now: i64) -> Vec<Record> {
        let mut rows = Vec::new();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, count| {
            if now.saturating_sub(count.since) < self.every {
                return true;
            }
            let row = count.row(now);
            let goes_on = row.is_some();
            rows.extend(row);
            goes_on
        });
        rows
    }

    pub(super) fn take_all(&self, now: i64) -> Vec<Record> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        counts.into_values().filter_map(|mut count| count.row(now)).collect()
    }
}

impl Count {
    /// One row for all that were refused, and a new interval.
    fn row(&mut self, now: i64) -> Option<Record> {
        let refused = std::mem::take(&mut self.refused);
        let since = std::mem::replace(&mut self.since, now);
        if refused == 0 {
            return None;
        }
        let mut record = self.like.clone();
        record.call_id = Uuid::now_v7().to_string();
        record.created_at = since;
        record.tool = format!("requests:{refused}");
        record.end(Decision::Deny, Status::Denied, Some(UNAUTHENTICATED), now);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::policy::Standing;

    fn origin(number: u32) -> Origin {
        Origin::from(IpAddr::V4(Ipv4Addr::from(number)))
    }

    fn note(tally: &Tally, from: u32, why: &'static str, now: i64) -> Option<Record> {
        let record = Record::begin("id".to_owned(), now, &Standing::Unknown, "tool");
        tally.note(origin(from), record, why, now)
    }

    #[test]
    fn an_origin_has_one_row_for_each_interval() {
        let tally = Tally::new(Duration::from_micros(100));
        assert_eq!(note(&tally, 1, "unknown_token", 0).unwrap().subject.as_deref(), Some("0.0.0.1"));
        assert!((0..50).all(|now| note(&tally, 1, "unknown_token", now).is_none()));
        assert!(note(&tally, 1, "malformed", 51).is_some(), "the first of another kind");
        assert!(tally.due(99).is_empty());
        let rows = tally.due(100);
        assert_eq!((rows.len(), rows[0].tool.as_str(), rows[0].duration_us), (1, "requests:50", 100));
        // It goes on: no more rows of their own, one for the interval.
        assert!((101..120).all(|now| note(&tally, 1, "malformed", now).is_none()));
        assert_eq!(tally.due(200).len(), 1);
        assert!(tally.due(300).is_empty(), "quiet, hence forgotten");
        assert!(note(&tally, 1, "unknown_token", 301).is_some());
    }

    #[test]
    fn those_who_are_too_many_are_counted_together() {
        let tally = Tally::new(Duration::from_secs(1));
        let many = u32::try_from(MAX_COUNTED).unwrap();
        let written =
            (0..many + 3_000).filter(|from| note(&tally, *from, "unknown_token", 0).is_some()).count();
        assert_eq!(written, MAX_COUNTED + 1);
        let rows = tally.take_all(1);
        assert_eq!((rows.len(), rows[0].subject.as_deref()), (1, Some(OTHERS)));
        assert_eq!(rows[0].tool, "requests:2999");
    }
}
