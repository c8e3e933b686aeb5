use async_nats::HeaderMap;

use crate::{ErrorCode, Kind, Subject, Timestamp, headers};

/// What was given up: the message as it was, and why.
///
/// The body is the handoff's own, byte for byte. Its headers stay as they were, except that those which
/// tell the server what to do (`Nats-…`) are kept under `Cynode-Original-…`, so that they do not act again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub kind: Kind,
    pub reason: ErrorCode,
    pub message: String,
    /// The sequence it had in the handoff stream.
    pub sequence: u64,
    pub deliveries: u64,
    /// When the handoff was published.
    pub published_at: Timestamp,
    /// Who gave it up.
    pub instance: String,
    /// Where the body lies when it and its headers together would not fit into one message any more.
    pub spilled: Option<String>,
    /// Headers of the original message.
    pub original: HeaderMap,
}

const REASON: &str = "Cynode-Dead-Reason";
const MESSAGE: &str = "Cynode-Dead-Message";
const SEQUENCE: &str = "Cynode-Dead-Sequence";
const DELIVERIES: &str = "Cynode-Dead-Deliveries";
const PUBLISHED_AT: &str = "Cynode-Dead-Published-At";
const INSTANCE: &str = "Cynode-Dead-Instance";
const SPILLED: &str = "Cynode-Dead-Body-Object";
const SERVER_PREFIX: &str = "Nats-";
const KEPT_PREFIX: &str = "Cynode-Original-";
const OWN_PREFIX: &str = "Cynode-Dead-";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterError {
    #[error("`{0}` is not a dead-letter subject")]
    Subject(String),
    #[error("header {0} is missing or unreadable")]
    Header(&'static str),
}

impl DeadLetter {
    pub fn subject(&self) -> Subject {
        Subject::Dead(self.kind)
    }

    /// Headers to publish it with. The message id makes a second copy of the same letter a duplicate.
    pub fn headers(&self) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, values) in self.original.iter() {
            let name: &str = name.as_ref();
            let kept = match name.strip_prefix(SERVER_PREFIX) {
                Some(rest) => format!("{KEPT_PREFIX}{rest}"),
                None => name.to_owned(),
            };
            for value in values {
                out.append(kept.as_str(), value.clone());
            }
        }
        out.insert(headers::MSG_ID, format!("dead:{}", self.sequence));
        out.insert(REASON, self.reason.as_str());
        out.insert(MESSAGE, one_line(&self.message));
        out.insert(SEQUENCE, self.sequence.to_string());
        out.insert(DELIVERIES, self.deliveries.to_string());
        out.insert(PUBLISHED_AT, self.published_at.as_written());
        out.insert(INSTANCE, self.instance.as_str());
        if let Some(object) = &self.spilled {
            out.insert(SPILLED, object.as_str());
        }
        out
    }

    /// Reads back what [`Self::headers`] wrote.
    pub fn read(subject: &str, headers: &HeaderMap) -> Result<Self, DeadLetterError> {
        let kind = match subject.parse() {
            Ok(Subject::Dead(kind)) => kind,
            _ => return Err(DeadLetterError::Subject(subject.to_owned())),
        };
        let text = |name: &'static str| {
            headers.get(name).map(|value| value.as_str()).ok_or(DeadLetterError::Header(name))
        };
        fn parsed<T: std::str::FromStr>(name: &'static str, text: &str) -> Result<T, DeadLetterError> {
            text.parse().map_err(|_| DeadLetterError::Header(name))
        }
        Ok(Self {
            kind,
            reason: parsed(REASON, text(REASON)?)?,
            message: text(MESSAGE)?.to_owned(),
            sequence: parsed(SEQUENCE, text(SEQUENCE)?)?,
            deliveries: parsed(DELIVERIES, text(DELIVERIES)?)?,
            published_at: parsed(PUBLISHED_AT, text(PUBLISHED_AT)?)?,
            instance: text(INSTANCE)?.to_owned(),
            spilled: text(SPILLED).ok().map(str::to_owned),
            original: original(headers),
        })
    }
}

fn original(headers: &HeaderMap) -> HeaderMap {
    let mut original = HeaderMap::new();
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        if name.starts_with(SERVER_PREFIX) || name.starts_with(OWN_PREFIX) {
            continue;
        }
        let was = match name.strip_prefix(KEPT_PREFIX) {
            Some(rest) => format!("{SERVER_PREFIX}{rest}"),
            None => name.to_owned(),
        };
        for value in values {
            original.append(was.as_str(), value.clone());
        }
    }
    original
}

/// A header value is one line of printable text; what a message quotes may be neither.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(512).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_reads_back_as_it_was_written() {
        let mut original = HeaderMap::new();
        original.insert("Nats-Msg-Id", "0193f2c0-0000-7000-8000-0000000000aa");
        original.insert("Content-Type", "application/json");
        original.append("X-Many", "one");
        original.append("X-Many", "two");
        let letter = DeadLetter {
            kind: Kind::Chat,
            reason: ErrorCode::Poisoned,
            message: "two lines".into(),
            sequence: 7,
            deliveries: 3,
            published_at: "2026-11-14T10:00:00Z".parse().expect("a time"),
            instance: "pma-1".into(),
            spilled: Some("dead-7".into()),
            original,
        };
        let headers = letter.headers();
        assert_eq!(headers.get("Nats-Msg-Id").map(|value| value.as_str()), Some("dead:7"));
        assert_eq!(DeadLetter::read("pma.dead.chat", &headers), Ok(letter));
    }

    #[test]
    fn a_reason_cannot_break_out_of_its_header() {
        assert_eq!(one_line("a\r\nNats-Rollup: all"), "a  Nats-Rollup: all");
    }
}
