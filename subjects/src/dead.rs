//! Dead letters: the handoff that was given up, and why, in the headers of a message.

use async_nats::HeaderMap;

use crate::{ErrorCode, Kind, Subject, Timestamp, headers};

/// A dead letter: the original message, and the reason why it was dead-lettered.
///
/// The body is the unchanged body of the handoff. The original headers are kept as well, but those that the
/// server interprets (`Nats-…`) or that look like ours are prefixed with `Cynode-Original-`, so that they
/// have no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub kind: Kind,
    pub reason: ErrorCode,
    pub message: String,
    /// The sequence of the original message in the handoff stream.
    pub sequence: u64,
    pub deliveries: u64,
    /// When the handoff was published.
    pub published_at: Timestamp,
    /// The instance that dead-lettered the handoff.
    pub instance: String,
    /// The object that holds the body, if body and headers together do not fit into one message.
    pub spilled: Option<String>,
    /// The object that holds the original headers, if they are too large for the dead letter.
    pub spilled_headers: Option<String>,
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
const HEADERS: &str = "Cynode-Dead-Headers-Object";
const SERVER_PREFIX: &str = "Nats-";
const OWN_PREFIX: &str = "Cynode-Dead-";
/// Prefixed to the name of an original header that the server would interpret or that looks like ours.
const KEPT_PREFIX: &str = "Cynode-Original-";
/// The maximum size of the original headers in a dead letter. JetStream accepts 64 KiB of headers in total.
const MAX_HEADER_BYTES: usize = 16 * 1024;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterError {
    #[error("`{0}` is not a dead-letter subject")]
    Subject(String),
    #[error("header {0} is missing or invalid")]
    Header(&'static str),
}

impl DeadLetter {
    pub fn subject(&self) -> Subject {
        Subject::Dead(self.kind)
    }

    /// Returns the headers to publish the letter with. Their message id makes the server drop a second
    /// publish of the same letter.
    pub fn headers(&self) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, values) in self.original.iter() {
            let name: &str = name.as_ref();
            let is_reserved =
                [SERVER_PREFIX, OWN_PREFIX, KEPT_PREFIX].iter().any(|prefix| name.starts_with(prefix));
            let kept = if is_reserved { format!("{KEPT_PREFIX}{name}") } else { name.to_owned() };
            for value in values {
                out.append(kept.as_str(), value.clone());
            }
        }
        out.insert(headers::MSG_ID, self.name());
        out.insert(REASON, self.reason.as_str());
        out.insert(MESSAGE, one_line(&self.message));
        out.insert(SEQUENCE, self.sequence.to_string());
        out.insert(DELIVERIES, self.deliveries.to_string());
        out.insert(PUBLISHED_AT, self.published_at.to_string());
        out.insert(INSTANCE, self.instance.as_str());
        if let Some(object) = &self.spilled {
            out.insert(SPILLED, object.as_str());
        }
        if let Some(object) = &self.spilled_headers {
            out.insert(HEADERS, object.as_str());
        }
        out
    }

    /// Returns a name that identifies the letter. It contains the publish time, since a recreated stream
    /// starts its sequences from 1 again.
    pub fn name(&self) -> String {
        format!("dead-{}-{}", self.sequence, self.published_at.at().unix_timestamp_nanos())
    }

    /// Removes the original headers if they are too large for the letter, except the few that are needed to
    /// read the body. Returns all original headers, to be stored elsewhere, or `None` if nothing was removed.
    pub fn split_off_headers(&mut self) -> Option<Vec<(String, String)>> {
        let all: Vec<(String, String)> = self
            .original
            .iter()
            .flat_map(|(name, values)| values.iter().map(|value| (name.to_string(), value.to_string())))
            .collect();
        let bytes: usize = all.iter().map(|(name, value)| name.len() + value.len() + KEPT_PREFIX.len()).sum();
        if bytes <= MAX_HEADER_BYTES {
            return None;
        }
        const NEEDED: [&str; 4] =
            [headers::CONTENT_TYPE, headers::MSG_ID, headers::SIGNATURE, headers::TRACEPARENT];
        let mut reduced = HeaderMap::new();
        for name in NEEDED {
            if let Some(value) = self.original.get(name).filter(|value| value.as_str().len() <= 1024) {
                reduced.insert(name, value.clone());
            }
        }
        self.original = reduced;
        Some(all)
    }

    /// Parses the headers that [`Self::headers`] returned.
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
            spilled_headers: text(HEADERS).ok().map(str::to_owned),
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
        let was = name.strip_prefix(KEPT_PREFIX).unwrap_or(name);
        for value in values {
            original.append(was, value.clone());
        }
    }
    original
}

/// Returns the text as a valid header value: control characters become spaces, and at most 512 characters are
/// kept.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(512).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_the_headers_of_a_dead_letter_restores_it() {
        let mut original = HeaderMap::new();
        original.insert("Nats-Msg-Id", "0193f2c0-0000-7000-8000-0000000000aa");
        original.insert("Content-Type", "application/json");
        original.append("X-Many", "one");
        original.append("X-Many", "two");
        // Headers with which a producer might try to imitate ours.
        original.insert("Cynode-Dead-Body-Object", "someone-elses");
        original.insert("Cynode-Original-Nats-Msg-Id", "forged");
        let letter = DeadLetter {
            kind: Kind::Chat,
            reason: ErrorCode::Poisoned,
            message: "two lines".into(),
            sequence: 7,
            deliveries: 3,
            published_at: "2026-11-14T10:00:00Z".parse().expect("a time"),
            instance: "pma-1".into(),
            spilled: Some("dead-7".into()),
            spilled_headers: None,
            original,
        };
        let headers = letter.headers();
        assert_eq!(headers.get("Nats-Msg-Id").map(|value| value.to_string()), Some(letter.name()));
        assert_eq!(DeadLetter::read("pma.dead.chat", &headers), Ok(letter));
    }

    #[test]
    fn oversized_headers_are_split_off_except_the_needed_ones() {
        let mut original = HeaderMap::new();
        original.insert("Content-Type", "application/msgpack");
        original.insert("X-Large", "x".repeat(60_000));
        let mut letter = DeadLetter {
            kind: Kind::Chat,
            reason: ErrorCode::InvalidHandoff,
            message: String::new(),
            sequence: 7,
            deliveries: 1,
            published_at: Timestamp::epoch(),
            instance: "pma-1".into(),
            spilled: None,
            spilled_headers: None,
            original,
        };
        assert_eq!(letter.split_off_headers().map(|taken| taken.len()), Some(2));
        assert_eq!(
            letter.original.get("Content-Type").map(|value| value.as_str()),
            Some("application/msgpack")
        );
        assert!(letter.original.get("X-Large").is_none());
        assert_eq!(letter.split_off_headers(), None);
    }

    #[test]
    fn a_reason_cannot_break_out_of_its_header() {
        assert_eq!(one_line("a\r\nNats-Rollup: all"), "a  Nats-Rollup: all");
    }
}
