//! Text that a model is writing, shown before it is known to be the answer, without secrets.
//!
//! A secret may arrive in several deltas, its name long before its value, and what follows a word may decide
//! whether it is one. So only complete words are read, and what may become a secret is held back.

use std::time::{Duration, Instant};

use secrets::StreamRedactor;
use subjects::Delta;

/// Between line ends, text is shown at most this often, because each time it is searched for secrets.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// The text of one try of one turn.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Attempt, turn and try.
    of: Option<(u32, u32, u32)>,
    next_sequence: u64,
    /// What was written and not searched for secrets yet.
    unread: String,
    /// Knows what was shown before, and what is held back.
    redactor: StreamRedactor,
    /// The last character that was shown.
    last: Option<char>,
    shown_at: Option<Instant>,
    /// Nothing more of this try is shown: the text has ended, or a delta was lost.
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
            self.unread.push_str(&delta.text);
            let is_due = self.shown_at.is_none_or(|at| at.elapsed() >= MIN_INTERVAL);
            if is_due || delta.text.contains('\n') {
                out.push_str(&self.show_words());
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Ends the text, whose last word is now complete. Returns what is to be shown for that.
    pub(super) fn end(&mut self) -> Option<String> {
        let mut out = String::new();
        if !self.is_closed {
            out.push_str(&self.redactor.push(&self.unread));
            out.push_str(&self.redactor.finish());
        }
        if out.chars().last().or(self.last).is_some_and(|last| last != '\n') {
            out.push('\n');
        }
        (self.last, self.is_closed) = (None, true);
        (!out.is_empty()).then_some(out)
    }

    /// Reads the words that are complete. Returns what is to be shown of the text.
    fn show_words(&mut self) -> String {
        let complete = self.unread.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let complete = self.unread.floor_char_boundary(complete);
        let new = self.redactor.push(&self.unread[..complete]);
        self.unread.drain(..complete);
        if let Some(last) = new.chars().last() {
            (self.last, self.shown_at) = (Some(last), Some(Instant::now()));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    use secrets::redact_by_kind;
    use subjects::HandoffId;

    use super::*;

    const SECRET: &str = "Zq7hunterUUU1x";
    /// Texts in which only the place of a word tells that it is a secret.
    const PLACES: [&str; 18] = [
        "password: SECRET",
        "password:\nSECRET",
        "Password\nSECRET",
        "**Password:**\n\t> `SECRET`",
        "The token:\n```\nSECRET\n```",
        "password: \"correct SECRET battery\"",
        "password: |\n  SECRET",
        "secret_key = \"\"\"\nSECRET\n\"\"\"",
        "- name: DB_PASSWORD\n  value: \"SECRET\"",
        "[{\"name\": \"token\",\n  \"value\": \"SECRET\"}]",
        "| Password | SECRET | bob |",
        "<password>SECRET \n</password>",
        "<add key=\"DbPassword\"\n  value=\"SECRET\"/>",
        "machine db.example\n  login bob\n  password SECRET\n",
        "curl https://api.example \\\n  --user 'bob:SECRET'",
        "mysql --password SECRET shop",
        "https://bob:SECRET@host/",
        "-----BEGIN PRIVATE KEY-----\nSECRET\nSECRET\n-----END PRIVATE KEY-----",
    ];

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

    /// Returns a text of many harmless words, lines and lists.
    fn harmless(random: &mut SmallRng, bytes: usize) -> String {
        const WORDS: [&str; 8] =
            ["The fence ", "is green.\n", "At 12:30 ", "* one, ", "two\n\n", "é… ", "(x) ", "a b"];
        let mut text = String::new();
        while text.len() < bytes {
            text.push_str(WORDS[random.random_range(0..WORDS.len())]);
        }
        text + "\n"
    }

    /// G11: what is shown is at any time the beginning of what the whole text is without its secrets, however
    /// the text is split and however long it is.
    #[test]
    fn what_is_shown_is_the_beginning_of_the_redacted_text() {
        for (seed, place) in PLACES.into_iter().cycle().take(6 * PLACES.len()).enumerate() {
            let mut random = SmallRng::seed_from_u64(seed as u64);
            let place = place.replace("SECRET", SECRET);
            let sizes = [0, 300, 5_000, 22_000];
            let before = sizes[random.random_range(0..sizes.len())];
            let (before, after) = (harmless(&mut random, before), harmless(&mut random, 600));
            let text = format!("{before}{place}\n{after}");
            let whole = redact_by_kind(&text);
            assert!(!whole.contains(SECRET), "{place:?} became {whole}");

            let (mut draft, mut out, mut rest) = (Draft::default(), String::new(), text.as_str());
            for sequence in 0.. {
                let is_near = rest.len() < place.len() + after.len() + 40;
                let most = if is_near { 12 } else { 2_000 };
                let (piece, left) = rest.split_at(rest.floor_char_boundary(random.random_range(1..=most)));
                rest = left;
                draft.shown_at = draft.shown_at.filter(|_| random.random_bool(0.5));
                out.push_str(&draft.push(&delta((1, 0, 1), sequence, piece)).unwrap_or_default());
                assert!(
                    whole.starts_with(&out),
                    "{place:?} in seed {seed} became {:?}",
                    out.get(before.len()..)
                );
                if rest.is_empty() {
                    break;
                }
            }
            out.push_str(&draft.end().unwrap_or_default());
            assert_eq!(out, whole, "{place:?} in seed {seed}");
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
