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
    /// Where the original headers lie when they are too many to be carried along.
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
/// Before the whole name of a header that must not act, or be taken for one of ours, on a dead letter.
const KEPT_PREFIX: &str = "Cynode-Original-";
/// What a letter carries of the original's headers at the most; JetStream takes 64 KiB in all.
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

    /// Headers to publish it with. The message id makes a second copy of the same letter a duplicate.
    pub fn headers(&self) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, values) in self.original.iter() {
            let name: &str = name.as_ref();
            let must_not_act =
                [SERVER_PREFIX, OWN_PREFIX, KEPT_PREFIX].iter().any(|prefix| name.starts_with(prefix));
            let kept = if must_not_act { format!("{KEPT_PREFIX}{name}") } else { name.to_owned() };
            for value in values {
                out.append(kept.as_str(), value.clone());
            }
        }
        out.insert(headers::MSG_ID, self.name());
        out.insert(REASON, self.reason.as_str());
        out.insert(MESSAGE, one_line(&self.message));
        out.insert(SEQUENCE, self.sequence.to_string());
        out.insert(DELIVERIES, self.deliveries.to_string());
        out.insert(PUBLISHED_AT, self.published_at.as_written());
        out.insert(INSTANCE, self.instance.as_str());
        if let Some(object) = &self.spilled {
            out.insert(SPILLED, object.as_str());
        }
        if let Some(object) = &self.spilled_headers {
            out.insert(HEADERS, object.as_str());
        }
        out
    }

    /// One name for one death. The time of publishing is part of it, since sequences begin anew with a new stream.
    pub fn name(&self) -> String {
        format!("dead-{}-{}", self.sequence, self.published_at.at().unix_timestamp_nanos())
    }

    /// Takes the original headers off when they are too many to be carried along, all but those that say how to read
    /// the body. Gives what was taken, to be kept elsewhere.
    pub fn lighten(&mut self) -> Option<Vec<(String, String)>> {
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
        let mut light = HeaderMap::new();
        for name in NEEDED {
            if let Some(value) = self.original.get(name).filter(|value| value.as_str().len() <= 1024) {
                light.insert(name, value.clone());
            }
        }
        self.original = light;
        Some(all)
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
        // What a stranger might add to be taken for our own words.
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
    fn too_many_headers_are_taken_off_but_for_those_that_are_needed() {
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
        assert_eq!(letter.lighten().map(|taken| taken.len()), Some(2));
        assert_eq!(
            letter.original.get("Content-Type").map(|value| value.as_str()),
            Some("application/msgpack")
        );
        assert!(letter.original.get("X-Large").is_none());
        assert_eq!(letter.lighten(), None);
    }

    #[test]
    fn a_reason_cannot_break_out_of_its_header() {
        assert_eq!(one_line("a\r\nNats-Rollup: all"), "a  Nats-Rollup: all");
    }
}
