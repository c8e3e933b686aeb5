//! The log of a job on its page: its last part, which grows.

use std::borrow::Cow;

use api::{Job, JobLogPosition};
use control::unfinished_character;
use data_encoding::BASE64;
use maud::{Markup, html};

use super::super::components::{name, visible_lines};
use crate::{Actor, Admin};

/// How much of a log a page shows.
const SHOWN_BYTES: usize = 64 * 1024;
/// How much is read at once, and how often for one page or update.
const PIECE_BYTES: u64 = 256 * 1024;
const MAX_PIECES: usize = 16;

/// The last part of a log, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct LogView {
    after: Option<String>,
    bytes: Vec<u8>,
    /// Whether there is more than is shown, before or after it.
    is_cut: bool,
    is_complete: bool,
    /// Why the log cannot be read.
    failure: Option<String>,
}

impl LogView {
    /// Reads what was written since the last time.
    pub(super) async fn read_on(&mut self, admin: &Admin, actor: &Actor, id: &str) {
        let mut has_more = false;
        for _ in 0..MAX_PIECES {
            if self.is_complete {
                return;
            }
            let position = JobLogPosition { after: self.after.clone(), limit: Some(PIECE_BYTES) };
            let piece = match admin.read_job_log(actor, id, &position).await {
                Ok(piece) => piece,
                Err(error) => {
                    self.failure = Some(error.to_string());
                    return;
                }
            };
            self.failure = None;
            self.bytes.extend(BASE64.decode(piece.content.as_bytes()).unwrap_or_default());
            let excess = self.bytes.len().saturating_sub(SHOWN_BYTES);
            self.is_cut |= excess > 0;
            self.bytes.drain(..excess);
            self.after = piece.next.or(self.after.take());
            self.is_complete = piece.is_complete;
            has_more = piece.has_more;
            if !has_more {
                break;
            }
        }
        self.is_cut |= has_more;
    }

    /// Returns whether the whole log was read and the job has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns what is shown, without the parts of characters at its ends: the first was cut, and the rest
    /// of the last comes with the next piece.
    fn text(&self) -> Cow<'_, str> {
        let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
        let from = if self.is_cut { self.bytes.iter().take(3).take_while(is_inside).count() } else { 0 };
        let unfinished = if self.is_complete { 0 } else { unfinished_character(&self.bytes[from..]) };
        String::from_utf8_lossy(&self.bytes[from..self.bytes.len() - unfinished])
    }

    pub(super) fn render(&self, job: &Job) -> Markup {
        let text = self.text();
        html! {
            @if let Some(failure) = &self.failure {
                p .flash .bad role="alert" { "The output cannot be read now: " (failure) "." }
            }
            @if self.is_cut {
                p .hint {
                    "This is a part of it; "
                    code { "cynodectl jobs logs " } (name(&job.job_id)) " prints all."
                }
            }
            @if text.is_empty() {
                @if self.failure.is_none() {
                    p {
                        @if self.is_complete { "The job wrote nothing." } @else { "Nothing was written yet." }
                    }
                }
                @if let Some(tail) = job.log_tail.as_ref().filter(|_| self.failure.is_some()) {
                    pre tabindex="0" { (visible_lines(tail)) }
                }
            } @else {
                pre tabindex="0" aria-label="Output of the job" { (visible_lines(&text)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_are_cut_at_the_ends_are_not_shown() {
        let view = |bytes: &[u8], is_cut, is_complete| LogView {
            bytes: bytes.to_vec(),
            is_cut,
            is_complete,
            ..LogView::default()
        };
        assert_eq!(view(b"\x82\xaca\xe2\x82", true, false).text(), "a");
        assert_eq!(view(b"a\xe2\x82\xac", false, false).text(), "a\u{20ac}");
        assert_eq!(view(b"\xaca\xe2", false, true).text(), "\u{fffd}a\u{fffd}", "the job wrote no text");
        assert_eq!(view(b"", true, false).text(), "");
    }
}
