//! Replaces secrets in a text that arrives in pieces. A secret may be split over any number of them.

mod unfinished;

use crate::redact_by_kind::{UNKNOWN, redact_by_kind};

/// A text that looks like the beginning of a secret is held back up to this size. Then it is replaced as far
/// as it is known.
const MAX_HELD_BYTES: usize = 16 * 1024;
/// A secret other than a private key begins within so many bytes before the end of the text, or is held back
/// already.
const TAIL_BYTES: usize = 1024;
const PRIVATE_KEY_BEGINS: &str = "-----BEGIN";
const PRIVATE_KEY_ENDS: &str = "-----END";
/// How much of the text that was passed on is kept, since it may give away what follows it.
const CONTEXT_BYTES: usize = 512;
/// The context is trimmed when the window has this size.
const TRIM_AT_BYTES: usize = MAX_HELD_BYTES + 4 * CONTEXT_BYTES;
/// The context is trimmed even within a secret when the window has this size.
const MAX_WINDOW_BYTES: usize = 64 * 1024;

/// Replaces secrets in a text that arrives in pieces, as [`redact_by_kind`] does in the whole text. Ordinary
/// text is passed on at once; what may become a secret is held back until it is clear.
#[derive(Clone, Debug, Default)]
pub struct StreamRedactor {
    /// The end of the text that was passed on, and what is held back.
    window: String,
    /// How much of the window was passed on, in bytes.
    sent: usize,
    /// What the sent part became.
    sent_text: String,
}

impl StreamRedactor {
    /// Adds a piece, and returns what can be passed on.
    pub fn push(&mut self, piece: &str) -> String {
        self.window.push_str(piece);
        let held = self.stable_end(held_from(&self.window));
        let end = if self.window.len() - held > MAX_HELD_BYTES { self.window.len() } else { held };
        let out = self.pass_on(end);
        self.trim();
        out
    }

    /// Returns the last place up to `end` at which the window can be cut without cutting a secret.
    fn stable_end(&self, end: usize) -> usize {
        let mut end = end.max(self.sent);
        if end == self.window.len() {
            return end;
        }
        let whole = redact_by_kind(&self.window);
        while end > self.sent && !whole.starts_with(&*redact_by_kind(&self.window[..end])) {
            let before = self.window[self.sent..end].trim_end().rfind(char::is_whitespace);
            end = before.map_or(self.sent, |at| self.sent + at);
        }
        end
    }

    /// Returns what was held back at the end of the text.
    pub fn finish(&mut self) -> String {
        let out = self.pass_on(self.window.len());
        *self = Self::default();
        out
    }

    /// Returns what is held back now. What follows is still read together with it, so only the beginning of a
    /// secret that does not look like one yet can pass.
    pub fn flush(&mut self) -> String {
        self.pass_on(self.window.len())
    }

    /// Passes on the window up to `end`.
    fn pass_on(&mut self, end: usize) -> String {
        if end <= self.sent {
            return String::new();
        }
        let redacted = redact_by_kind(&self.window[..end]).into_owned();
        match redacted.strip_prefix(self.sent_text.as_str()) {
            Some(added) => {
                let added = added.to_owned();
                (self.sent, self.sent_text) = (end, redacted);
                added
            }
            // What was passed on turned out to be a part of a secret, such as the name before a password. The
            // rest of the word is not passed on, nor is what else belongs to the secret.
            None => {
                let from = end - self.window[self.sent..end].trim_start().len();
                let mut rest = self.window[from..end].char_indices().skip(1);
                self.sent = rest.find(|(_, it)| ends_word(*it)).map_or(end, |(at, _)| from + at);
                self.sent_text = redact_by_kind(&self.window[..self.sent]).into_owned();
                UNKNOWN.to_owned() + &self.pass_on(end)
            }
        }
    }

    /// Drops the text that was passed on, except for its end.
    fn trim(&mut self) {
        if self.window.len() < TRIM_AT_BYTES || self.sent < 2 * CONTEXT_BYTES {
            return;
        }
        let from = self.window.floor_char_boundary(self.sent - CONTEXT_BYTES);
        // Between words, so that no half of a secret is left that looks like none.
        let word = self.window[from..self.sent].find(char::is_whitespace).map_or(self.sent, |at| from + at);
        let (before, after) = self.window.split_at(word);
        let (before, after) = (redact_by_kind(before), redact_by_kind(&after[..self.sent - word]));
        // Within a secret, the rest of it would not be found any more.
        let cuts_secret = self.sent_text.strip_prefix(&*before) != Some(&*after);
        if cuts_secret && self.window.len() < MAX_WINDOW_BYTES {
            return;
        }
        self.sent_text = after.into_owned();
        self.window.drain(..word);
        self.sent -= word;
    }
}

/// Returns whether a word ends before a character: a name with its password has none of these, and JSON that
/// is cut within one is broken.
fn ends_word(character: char) -> bool {
    character.is_whitespace() || matches!(character, '"' | '\'' | '\\' | '<' | '>')
}

/// Returns where the text has to be held back from: its length if nothing at its end may become a secret.
fn held_from(text: &str) -> usize {
    if let Some(key) = text.rfind(PRIVATE_KEY_BEGINS)
        && !text[key..].find(PRIVATE_KEY_ENDS).is_some_and(|end| text[key + end..].contains('\n'))
    {
        return key;
    }
    let from = text.floor_char_boundary(text.len().saturating_sub(TAIL_BYTES));
    unfinished::find(&text[from..]).map_or(text.len(), |start| from + start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::tests::{BODY, shapes};

    fn in_pieces(text: &str, size: usize) -> String {
        let mut redactor = StreamRedactor::default();
        let characters: Vec<char> = text.chars().collect();
        let mut out: String =
            characters.chunks(size).map(|piece| redactor.push(&piece.iter().collect::<String>())).collect();
        out.push_str(&redactor.finish());
        out
    }

    /// G11: a secret of any known shape is replaced, wherever the stream is split.
    #[test]
    fn no_secret_passes_in_pieces() {
        for (text, secret) in shapes() {
            for place in [format!("please use {text} and go on"), format!("```\n{text}\n```\nDone.")] {
                for size in [1, 7] {
                    let out = in_pieces(&place, size);
                    assert!(out.contains("[redacted:"), "{place}\nin pieces of {size} became\n{out}");
                    for half in [&secret[..secret.len() / 2], &secret[secret.len() / 2..]] {
                        assert!(!out.contains(half), "{place}\nin pieces of {size} became\n{out}");
                    }
                }
            }
        }
    }

    /// Whether a word is a password may depend on what follows it, so it is held back until that is known.
    #[test]
    fn passwords_below_their_names_are_replaced_in_pieces() {
        for (text, expected) in [
            ("Password\nhunter2\nEmail", "Password\n[redacted:secret]\nEmail"),
            ("Password:\ncorrecthorse\nDone.", "Password:\n[redacted:secret]\nDone."),
            ("Password:\ncorrecthorse", "Password:\n[redacted:secret]"),
            ("Enter the password:\nthen go on.", "Enter the password:\nthen go on."),
            ("run --password hunter2 now", "run --password [redacted:secret] now"),
            ("Pass --password to it.", "Pass --password to it."),
            ("<password>hunter2</password>.", "<password>[redacted:secret]</password>."),
            ("Write <password> there.\nDone.", "Write <password> there.\nDone."),
        ] {
            for size in [1, 3, 100] {
                assert_eq!(in_pieces(text, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn ordinary_words_are_passed_on_at_once() {
        let mut redactor = StreamRedactor::default();
        for word in ["Hello", ", ", "the", " tasks", " are", " done", ".\n", "Two", " are", " left", "."] {
            assert_eq!(redactor.push(word), word);
        }
        assert_eq!(redactor.finish(), "");
    }

    #[test]
    fn text_without_secrets_stays_as_it_is() {
        let text = "At 12:30 see https://docs.example/a?b=c#d, file://x or sk: S and A. A basic idea -- so.\n\
                    {\"a\": \"b\", 'c': [1, 2]} é…";
        for size in [1, 2, 5] {
            assert_eq!(in_pieces(text, size), text);
        }
        let long = "All of this is harmless text of some length. ".repeat(500);
        assert_eq!(in_pieces(&long, 4), long);
    }

    #[test]
    fn secret_after_a_long_text_and_before_another_is_replaced() {
        let text = format!("{}\ntoken: {BODY}, then sk-{BODY}; end", "word ".repeat(5000));
        let out = in_pieces(&text, 11);
        assert!(!out.contains(BODY) && out.ends_with("; end"), "{}", &out[out.len() - 200..]);
    }

    /// The beginning of a secret is not forgotten before its end.
    #[test]
    fn secret_that_is_longer_than_the_context_is_replaced() {
        let before = "A line of harmless text.\n".repeat(TRIM_AT_BYTES / 25 - 20);
        let secret = "correct horse battery staple ".repeat(60);
        let text = format!("{before}password: \"{secret}\" and so on.\n");
        for size in [7, 64] {
            assert_eq!(in_pieces(&text, size), redact_by_kind(&text), "in pieces of {size}");
        }
    }

    /// What was held back is passed on early, and what follows is no half of a secret.
    #[test]
    fn text_after_a_flush_is_read_with_the_text_before_it() {
        let mut redactor = StreamRedactor::default();
        let mut out = redactor.push("Use sk-Q7rT2");
        assert_eq!(out, "Use ");
        out += &redactor.flush();
        out += &redactor.push(&BODY[5..]);
        out += &redactor.push(" now");
        out += &redactor.flush();
        assert_eq!(out, "Use sk-Q7rT2[redacted:secret] now");
        assert_eq!(redactor.flush(), "");
    }

    /// The arguments of a call are JSON.
    #[test]
    fn json_stays_json_wherever_it_is_split() {
        for text in [
            r#"{"to":"mailto:bob@x.io","n":1}"#,
            r#"{"image":"nginx:1.25@sha256:ab","n":1}"#,
            r#"{"text":"write\nmailto:bob@x.io\nnow","n":1}"#,
            r#"{"from":"https://bob:hunter2@host/","n":1}"#,
        ] {
            for first in 1..text.len() {
                for second in first..text.len() {
                    let mut redactor = StreamRedactor::default();
                    let mut out = redactor.push(&text[..first]);
                    out += &redactor.push(&text[first..second]);
                    out += &redactor.push(&text[second..]);
                    out += &redactor.finish();
                    assert!(out.ends_with(r#"","n":1}"#) && out.matches('"').count() == 6, "{out}");
                    assert!(!out.contains("hunter2"), "{out}");
                }
            }
        }
    }

    /// A name before a password is passed on before its `@` is seen; the password is not.
    #[test]
    fn password_before_an_at_sign_is_never_passed_on() {
        let mut redactor = StreamRedactor::default();
        let mut out = redactor.push("mail");
        out += &redactor.push(":hunt");
        out += &redactor.push("er2@host.example now");
        out += &redactor.finish();
        assert_eq!(out, "mail[redacted:secret] now");
    }
}
