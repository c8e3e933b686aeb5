//! Counts refused requests, so that a flood of them becomes a few audit rows.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use super::Origin;
use audit::{Decision, Record, Status};

/// Origins with their own count; all others are counted together.
const MAX_COUNTED: usize = 10_000;
const OTHERS: &str = "other-addresses";
const UNAUTHENTICATED: &str = "unauthenticated";

/// Counts of refused requests, by origin and by the known token that they presented, if any.
#[derive(Debug)]
pub(super) struct RefusalCounts {
    /// Interval between rows of one count, in microseconds.
    every: i64,
    counts: Mutex<BTreeMap<Key, Count>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// `None` for the origins that are counted together.
    origin: Option<Origin>,
    token: Option<String>,
}

#[derive(Debug)]
struct Count {
    /// Record that the rows of this count are copied from.
    template: Record,
    /// Start of the current interval, in microseconds.
    since: i64,
    /// Refused requests in the interval, without those that have their own row.
    refused: u64,
    /// Error types that have had their own row.
    written: Vec<&'static str>,
}

impl RefusalCounts {
    pub(super) fn new(every: Duration) -> Self {
        let every = i64::try_from(every.as_micros()).unwrap_or(i64::MAX);
        Self { every, counts: Mutex::default() }
    }

    /// Counts a refused request. Returns its record if it is the first with this error type, so that it gets
    /// its own row.
    pub(super) fn count(
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
            template: record.clone(),
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

    /// Returns the records of counts whose interval has ended. Removes counts without a refusal in the
    /// interval.
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

    /// Removes all counts and returns their records.
    pub(super) fn take_all(&self, now: i64) -> Vec<Record> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        counts.into_values().filter_map(|mut count| count.row(now)).collect()
    }
}

impl Count {
    /// Returns one record for all refusals of the interval, if there were any, and starts a new interval.
    fn row(&mut self, now: i64) -> Option<Record> {
        let refused = std::mem::take(&mut self.refused);
        let since = std::mem::replace(&mut self.since, now);
        if refused == 0 {
            return None;
        }
        let mut record = self.template.clone();
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
    use policy::Standing;

    fn origin(number: u32) -> Origin {
        Origin::from(IpAddr::V4(Ipv4Addr::from(number)))
    }

    fn refuse(refusals: &RefusalCounts, from: u32, why: &'static str, now: i64) -> Option<Record> {
        let record = Record::begin("id".to_owned(), now, &Standing::Unknown, "tool");
        refusals.count(origin(from), record, why, now)
    }

    #[test]
    fn an_origin_has_one_row_per_interval() {
        let refusals = RefusalCounts::new(Duration::from_micros(100));
        assert_eq!(refuse(&refusals, 1, "unknown_token", 0).unwrap().subject.as_deref(), Some("0.0.0.1"));
        assert!((0..50).all(|now| refuse(&refusals, 1, "unknown_token", now).is_none()));
        assert!(refuse(&refusals, 1, "malformed", 51).is_some(), "the first of another kind");
        assert!(refusals.due(99).is_empty());
        let rows = refusals.due(100);
        assert_eq!((rows.len(), rows[0].tool.as_str(), rows[0].duration_us), (1, "requests:50", 100));
        // In the next interval no error type gets its own row; there is one row for the interval.
        assert!((101..120).all(|now| refuse(&refusals, 1, "malformed", now).is_none()));
        assert_eq!(refusals.due(200).len(), 1);
        assert!(refusals.due(300).is_empty(), "removed after an interval without refusals");
        assert!(refuse(&refusals, 1, "unknown_token", 301).is_some());
    }

    #[test]
    fn origins_beyond_the_limit_are_counted_together() {
        let refusals = RefusalCounts::new(Duration::from_secs(1));
        let many = u32::try_from(MAX_COUNTED).unwrap();
        let written =
            (0..many + 3_000).filter(|from| refuse(&refusals, *from, "unknown_token", 0).is_some()).count();
        assert_eq!(written, MAX_COUNTED + 1);
        let rows = refusals.take_all(1);
        assert_eq!((rows.len(), rows[0].subject.as_deref()), (1, Some(OTHERS)));
        assert_eq!(rows[0].tool, "requests:2999");
    }
}
