//! Text that a model is writing, sent as the answer before it is known to be it, without secrets.
//!
//! Most text turns out to be the answer. Text of a turn that ends in tool calls is followed by the text of
//! the next turn. A try that starts over is compared with what was sent: while it says the same, nothing is
//! repeated. Otherwise what was sent is withdrawn when the answer is known.

use secrets::{StreamRedactor, redact_by_kind};
use subjects::Delta;

/// How a piece of text relates to the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// It continues the previous piece.
    None,
    /// The text before belongs to an earlier turn of the model, which ended in tool calls.
    NextTurn,
    /// The text before turned out not to be the answer. What follows is all of the answer.
    Withdrawn,
}

/// Text that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) boundary: Boundary,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(super) struct LiveText {
    /// Attempt, turn and try.
    of: Option<(u32, u32, u32)>,
    next_sequence: u64,
    redactor: StreamRedactor,
    /// All that this try has said, with its secrets.
    said: String,
    /// What this try has written.
    written: String,
    /// What was sent of this turn.
    sent: String,
    /// Whether text of an earlier turn was sent.
    has_earlier: bool,
    /// Nothing more of this try is sent: a delta was lost, or it says something else than an earlier one.
    is_broken: bool,
}

impl LiveText {
    /// Adds a delta. Returns what is to be sent now: the rest of the turn before, and the text of this one.
    pub(super) fn push(&mut self, delta: &Delta) -> Vec<Piece> {
        let of = (delta.attempt, delta.turn, delta.r#try);
        if self.of.is_some_and(|earlier| earlier > of) {
            return Vec::new();
        }
        // What a dead worker has written may end with the beginning of a secret.
        let has_ended = self.of.is_some_and(|(attempt, turn, _)| attempt == of.0 && turn < of.1);
        let rest = if has_ended { self.flush() } else { None };
        if self.of != Some(of) {
            self.begin(of);
        }
        self.is_broken |= delta.sequence != self.next_sequence;
        self.next_sequence = delta.sequence + 1;
        let new = if self.is_broken {
            None
        } else {
            self.said.push_str(&delta.text);
            let piece = self.redactor.push(&delta.text);
            self.add(&piece)
        };
        rest.into_iter().chain(new).collect()
    }

    /// Returns what is held back of a turn whose text has ended.
    pub(super) fn flush(&mut self) -> Option<Piece> {
        if self.is_broken {
            return None;
        }
        let rest = self.redactor.flush();
        self.add(&rest)
    }

    /// Adds text without secrets. Returns what of it was not sent yet.
    fn add(&mut self, piece: &str) -> Option<Piece> {
        self.written.push_str(piece);
        if self.sent.starts_with(&self.written) {
            return None;
        }
        let Some(new) = self.written.strip_prefix(self.sent.as_str()) else {
            self.is_broken = true;
            return None;
        };
        let piece = Piece { boundary: self.boundary(), text: new.to_owned() };
        self.sent.clone_from(&self.written);
        Some(piece)
    }

    fn begin(&mut self, of: (u32, u32, u32)) {
        let is_same_turn = self.of.is_some_and(|(_, turn, _)| turn == of.1);
        if !is_same_turn && !self.sent.is_empty() {
            self.has_earlier = true;
            self.sent.clear();
        }
        (self.of, self.next_sequence, self.is_broken) = (Some(of), 0, false);
        (self.redactor, self.said, self.written) = (StreamRedactor::default(), String::new(), String::new());
    }

    fn boundary(&self) -> Boundary {
        if self.sent.is_empty() && self.has_earlier { Boundary::NextTurn } else { Boundary::None }
    }

    /// Returns what is to be sent when the answer is known.
    pub(super) fn finish(&mut self, answer: &str) -> Option<Piece> {
        match answer.strip_prefix(self.sent.as_str()) {
            Some("") => None,
            Some(rest) => Some(Piece { boundary: self.boundary(), text: rest.to_owned() }),
            // The same text. A part of it was sent before it turned out to belong to a secret, such as the
            // name before a password.
            None if self.has_said(answer) => self.flush(),
            None => Some(Piece { boundary: Boundary::Withdrawn, text: answer.to_owned() }),
        }
    }
}

impl LiveText {
    /// Returns whether the answer is what this try has said, and this try is what was sent.
    fn has_said(&self, answer: &str) -> bool {
        let is_sent = !self.is_broken && self.written == self.sent;
        is_sent && redact_by_kind(&self.said).trim() == answer.trim()
    }
}

#[cfg(test)]
mod tests {
    use subjects::HandoffId;

    use super::*;

    /// Sends deltas, given as turn, try, sequence and text, and then the answer.
    fn sent(deltas: &[(u32, u32, u64, &str)], answer: &str) -> String {
        let (mut text, handoff_id) = (LiveText::default(), HandoffId::now());
        let mut out = String::new();
        for (turn, r#try, sequence, piece) in deltas {
            let delta = Delta {
                handoff_id,
                attempt: 1,
                turn: *turn,
                r#try: *r#try,
                sequence: *sequence,
                text: (*piece).to_owned(),
            };
            out.extend(text.push(&delta).iter().map(shown));
        }
        out.extend(text.finish(answer).iter().map(shown));
        out
    }

    fn shown(piece: &Piece) -> String {
        let mark = match piece.boundary {
            Boundary::None => "",
            Boundary::NextTurn => "|",
            Boundary::Withdrawn => "|withdrawn|",
        };
        format!("{mark}{}", piece.text)
    }

    #[test]
    fn answer_is_sent_as_it_is_written() {
        let mut text = LiveText::default();
        let handoff_id = HandoffId::now();
        for (sequence, piece) in ["Two", " tasks", " are", " open."].into_iter().enumerate() {
            let (attempt, turn, sequence) = (1, 0, sequence as u64);
            let delta = Delta { handoff_id, attempt, turn, r#try: 1, sequence, text: piece.to_owned() };
            assert_eq!(text.push(&delta).iter().map(shown).collect::<String>(), piece);
        }
        assert_eq!(text.finish("Two tasks are open."), None);
    }

    #[test]
    fn what_is_sent_ends_with_the_answer() {
        for (deltas, answer, expected) in [
            // Nothing was streamed, or a part was lost.
            (&[][..], "All done.", "All done."),
            (&[(0, 1, 0, "All"), (0, 1, 2, "ne.")], "All done.", "All done."),
            // The same again, and something else.
            (&[(0, 1, 0, "All d"), (0, 2, 0, "All "), (0, 2, 1, "done.")], "All done.", "All done."),
            (
                &[(0, 1, 0, "I created it."), (0, 2, 0, "Nothing")],
                "Nothing was done.",
                "I created it.|withdrawn|Nothing was done.",
            ),
            // A turn that ended in tool calls.
            (&[(0, 1, 0, "Let me look."), (1, 1, 0, "None.")], "None.", "Let me look.|None."),
            (&[(0, 1, 0, "Let me look.")], "Let me look.", "Let me look."),
            // What was held back of it.
            (&[(0, 1, 0, "I use sk-"), (1, 1, 0, "None.")], "None.", "I use sk-|None."),
            (&[(0, 1, 0, "sk-"), (1, 1, 0, "sk-"), (2, 1, 0, "None.")], "None.", "sk-|sk-|None."),
            (&[(0, 1, 0, "I use sk-"), (0, 2, 0, "I use none.")], "I use none.", "I use none."),
        ] {
            assert_eq!(sent(deltas, answer), expected, "{deltas:?}");
        }
    }

    /// G11
    #[test]
    fn secret_that_is_split_over_deltas_is_not_sent() {
        let key = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";
        let deltas = [(0, 1, 0, "Use sk-"), (0, 1, 1, &key[..20]), (0, 1, 2, &key[20..]), (0, 1, 3, " now.")];
        assert_eq!(sent(&deltas, "Use [redacted:model_key] now."), "Use [redacted:model_key] now.");
    }

    /// Whether a word is a part of a secret may only show after it was sent. The answer is the same.
    #[test]
    fn answer_with_secrets_is_not_withdrawn_however_it_is_split() {
        let answer = redact_by_kind("Contact mail:hunter2@host.example now please").into_owned();
        let deltas =
            [(0, 1, 0, "Contact mail"), (0, 1, 1, ":hunt"), (0, 1, 2, "er2@host.example now please")];
        assert_eq!(sent(&deltas, &answer), "Contact mail[redacted:secret] now please");
        for text in [
            "Contact mail:hunter2@host.example now please",
            "Open http://alice:8080/x and mail bob@example.com, user:admin@example.com wrote.",
            "The secret word is unknown.\nToken:\nabc123def is it? See service:v1@prod",
            "Use sk-Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro or --password hunter2",
        ] {
            let answer = redact_by_kind(text);
            for first in 1..text.len() {
                for second in first..text.len() {
                    let pieces = [&text[..first], &text[first..second], &text[second..]];
                    let deltas = [(0, 1, 0, pieces[0]), (0, 1, 1, pieces[1]), (0, 1, 2, pieces[2])];
                    let sent = sent(&deltas, &answer);
                    assert!(!sent.contains("withdrawn"), "{pieces:?} became {sent}");
                    assert!(!sent.contains("hunter2") && !sent.contains("Q7rT2"), "{pieces:?}: {sent}");
                }
            }
        }
        // Another answer is.
        assert!(sent(&deltas, "Something else.").contains("|withdrawn|"));
    }
}
