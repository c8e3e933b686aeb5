//! How far a log was read.

use std::{fmt, str::FromStr};

use subjects::NodeId;

use crate::ToolError;

/// How many attempts a cursor remembers. A job that nodes hand back over and over has more; of the oldest, a
/// chunk that comes twice is shown twice then.
const MAX_REMEMBERED: usize = 8;

/// How far a log was read: all of the chunks before a sequence, and some bytes of the one that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) sequence: u64,
    /// `None`: all of it.
    pub(super) bytes: Option<usize>,
    pub(super) shown: Shown,
}

/// The number of the last chunk that was shown, for each node and attempt, the latest attempt last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown(Vec<Last>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    node: NodeId,
    attempt: u32,
    number: u64,
}

impl Shown {
    /// Returns whether the chunk comes after those that were shown. A chunk whose confirmation was lost for
    /// long is in the stream twice.
    pub(super) fn is_new(&self, node: &NodeId, attempt: u32, number: u64) -> bool {
        let same = self.0.iter().find(|last| last.attempt == attempt && last.node == *node);
        same.is_none_or(|last| last.number < number)
    }

    pub(super) fn add(&mut self, node: &NodeId, attempt: u32, number: u64) {
        self.0.retain(|last| last.attempt != attempt || last.node != *node);
        self.0.push(Last { node: node.clone(), attempt, number });
        if self.0.len() > MAX_REMEMBERED {
            self.0.remove(0);
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sequence)?;
        if let Some(bytes) = self.bytes {
            write!(f, "+{bytes}")?;
        }
        let mut lasts = self.shown.0.iter();
        lasts.try_for_each(|last| write!(f, ",{}/{}/{}", last.node, last.attempt, last.number))
    }
}

impl FromStr for Cursor {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        let read = || {
            let mut parts = text.split(',');
            let position = parts.next()?;
            let (sequence, bytes) = match position.split_once('+') {
                Some((sequence, bytes)) => (sequence, Some(bytes.parse().ok()?)),
                None => (position, None),
            };
            let shown = parts.map(read_last).collect::<Option<Vec<_>>>()?;
            let shown = Some(Shown(shown)).filter(|shown| shown.0.len() <= MAX_REMEMBERED)?;
            Some(Self { sequence: sequence.parse().ok()?, bytes, shown })
        };
        read().ok_or_else(|| ToolError::Invalid("`after` must be the `next` of the piece before".to_owned()))
    }
}

fn read_last(text: &str) -> Option<Last> {
    let mut parts = text.split('/');
    let last = Last {
        node: parts.next()?.parse().ok()?,
        attempt: parts.next()?.parse().ok()?,
        number: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str) -> NodeId {
        id.parse().unwrap()
    }

    #[test]
    fn cursor_is_read_as_it_is_written() {
        let mut shown = Shown::default();
        shown.add(&node("a-1"), 1, 7);
        shown.add(&node("b"), 2, 1);
        for cursor in [
            Cursor { sequence: 7, ..Cursor::default() },
            Cursor { sequence: 7, bytes: Some(42), ..Cursor::default() },
            Cursor { sequence: 7, bytes: Some(0), shown },
        ] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in ["", "x", "1+", "+1", "1+2+3", "-1", "1,", "1,a/1", "1,a/1/2/3", "1,A/1/2", "1,a/1/x"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        let many = format!("1{}", ",a/1/1".repeat(MAX_REMEMBERED + 1));
        assert!(many.parse::<Cursor>().is_err());
    }

    #[test]
    fn chunk_is_new_once_for_each_node_and_attempt() {
        let mut shown = Shown::default();
        shown.add(&node("a"), 1, 2);
        assert!(!shown.is_new(&node("a"), 1, 1) && !shown.is_new(&node("a"), 1, 2));
        assert!(shown.is_new(&node("a"), 1, 3), "it comes next");
        assert!(shown.is_new(&node("a"), 2, 1) && shown.is_new(&node("b"), 1, 1), "they begin again");
        (2..=9).for_each(|attempt| shown.add(&node("a"), attempt, 1));
        assert!(shown.is_new(&node("a"), 1, 1), "the oldest is forgotten");
        assert!(!shown.is_new(&node("a"), 2, 1));
    }
}
