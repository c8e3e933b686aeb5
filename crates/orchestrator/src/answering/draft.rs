//! Text that a model is writing, shown before it is known to be the answer, without secrets.
//!
//! A secret may arrive in several deltas, so a word is shown only when it is complete, and only if what was
//! shown before it is still right: `password = ` may be shown, what follows is replaced.

use std::time::{Duration, Instant};

use secrets::redact_by_kind;
use subjects::Delta;

/// Between line ends, text is shown at most this often, because each time it is searched for secrets.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// Beyond this length, finished lines without secrets are not searched again.
const MAX_CLEAN_BYTES: usize = 4 * 1024;
/// Text with a secret is searched again up to this length; afterwards nothing more of it is shown.
const MAX_BYTES: usize = 64 * 1024;

/// The text of one try of one turn.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Attempt, turn and try.
    of: Option<(u32, u32, u32)>,
    next_sequence: u64,
    /// What was written, from the beginning of a line.
    written: String,
    /// What was shown of it: the beginning of `written` without its secrets.
    shown: String,
    shown_at: Option<Instant>,
    /// Nothing more of this try is shown: the text has ended, a delta was lost, or what was
    /// shown is no longer right.
    is_closed: bool,
}

impl Draft {
    /// Adds a delta. Returns what is to be shown now.
    pub(super) fn push(&mut self, delta: &Delta) -> Option<String> {
        let of = (delta.attempt, delta.turn, delta.r#try);
        let mut out = String::new();
        if self.of.is_some_and(|earlier| earlier > of) {
            return None;
        }
        if self.of != Some(of) {
            let starts_over = self.of.is_some_and(|(_, turn, _)| turn == of.1);
            // What broke off may be the beginning of a secret.
            self.is_closed |= starts_over;
            out.push_str(&self.end().unwrap_or_default());
            if starts_over {
                out.push_str("(starting over)\n");
            }
            *self = Self { of: Some(of), ..Self::default() };
        }
        self.is_closed |= delta.sequence != self.next_sequence;
        self.next_sequence = delta.sequence + 1;
        if !self.is_closed {
            self.written.push_str(&delta.text);
            let is_due = self.shown_at.is_none_or(|at| at.elapsed() >= MIN_INTERVAL);
            if is_due || delta.text.contains('\n') {
                let complete = self.written.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                out.push_str(&self.show(self.written.floor_char_boundary(complete)));
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Ends the text, whose last word is now complete. Returns what is to be shown for that.
    pub(super) fn end(&mut self) -> Option<String> {
        let mut out = if self.is_closed { String::new() } else { self.show(self.written.len()) };
        let last = if out.is_empty() { self.shown.chars().last() } else { out.chars().last() };
        if last.is_some_and(|last| last != '\n') {
            out.push('\n');
        }
        self.shown.clear();
        self.is_closed = true;
        (!out.is_empty()).then_some(out)
    }

    /// Shows the text up to `end`. Returns what is new of it.
    fn show(&mut self, end: usize) -> String {
        let redacted = redact_by_kind(&self.written[..end]);
        let Some(new) = redacted.strip_prefix(self.shown.as_str()) else {
            self.is_closed = true;
            return String::new();
        };
        let new = new.to_owned();
        let is_clean = *redacted == self.written[..end];
        self.shown = redacted.into_owned();
        if !new.is_empty() {
            self.shown_at = Some(Instant::now());
        }
        if is_clean && end > MAX_CLEAN_BYTES {
            let line = self.shown.rfind('\n').map_or(0, |at| at + 1);
            self.written.drain(..line);
            self.shown.drain(..line);
        }
        self.is_closed |= self.written.len() > MAX_BYTES;
        new
    }
}

#[cfg(test)]
mod tests {
    use subjects::HandoffId;

    use super::*;

    fn delta(of: (u32, u32, u32), sequence: u64, text: &str) -> Delta {
        let (attempt, turn, r#try) = of;
        Delta { handoff_id: HandoffId::now(), attempt, turn, r#try, sequence, text: text.to_owned() }
    }

    /// Shows a text that arrives in pieces of `size` bytes, all at once.
    fn shown(text: &str, size: usize) -> String {
        let mut draft = Draft::default();
        let mut out = String::new();
        for (sequence, piece) in text.as_bytes().chunks(size).enumerate() {
            let piece = std::str::from_utf8(piece).unwrap();
            draft.shown_at = None;
            out.push_str(&draft.push(&delta((1, 0, 1), sequence as u64, piece)).unwrap_or_default());
        }
        out.push_str(&draft.end().unwrap_or_default());
        out
    }

    #[test]
    fn text_is_shown_word_by_word() {
        let text = "There are three tasks.\nThe first is to paint the fence.\n";
        for size in [1, 2, 7, 1000] {
            assert_eq!(shown(text, size), text, "{size}");
        }
        let long = "a line of the answer\n".repeat(1000);
        assert_eq!(shown(&long, 100), long);
    }

    /// G11: a secret that is split over deltas is not shown, not even a part of it.
    #[test]
    fn secrets_are_not_shown_however_they_are_split() {
        let key = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";
        let pem = format!("-----BEGIN RSA PRIVATE KEY-----\n{key}\n{key}\n-----END RSA PRIVATE KEY-----");
        for secret in [
            format!("sk-{key}"),
            format!("password = {key}"),
            format!("password: \"{key} {key}\""),
            format!("Authorization: Bearer {key}"),
            format!("https://bob:{key}@host/"),
            pem,
        ] {
            let text = format!("Use this: {secret} and go on.\nThen stop.\n");
            for size in 1..40 {
                let out = shown(&text, size);
                assert!(!out.contains(&key[..10]), "{size}: {out}");
                assert!(!out.contains(&key[key.len() - 10..]), "{size}: {out}");
                assert!(out.starts_with("Use this: "), "{size}: {out}");
            }
        }
    }

    #[test]
    fn a_new_try_starts_over_and_older_deltas_are_dropped() {
        let mut draft = Draft::default();
        assert_eq!(draft.push(&delta((1, 0, 1), 0, "Let me ")).as_deref(), Some("Let me "));
        draft.shown_at = None;
        assert_eq!(draft.push(&delta((1, 0, 1), 1, "lo")), None, "no word is complete");
        assert_eq!(
            draft.push(&delta((1, 0, 2), 0, "I will look. ")).as_deref(),
            Some("\n(starting over)\nI will look. ")
        );
        assert_eq!(draft.push(&delta((1, 0, 1), 2, "ok ")), None);
        assert_eq!(draft.push(&delta((1, 1, 1), 0, "Done. ")).as_deref(), Some("\nDone. "));
    }

    #[test]
    fn a_lost_delta_ends_the_draft() {
        let mut draft = Draft::default();
        assert!(draft.push(&delta((1, 0, 1), 0, "one ")).is_some());
        assert_eq!(draft.push(&delta((1, 0, 1), 2, "three\n")), None);
        assert_eq!(draft.push(&delta((1, 0, 1), 3, "four\n")), None);
    }
}
