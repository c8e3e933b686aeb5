//! Finds characters that hide text from human readers.

use super::ScanMatch;
use crate::arguments::characters::{is_bidi_control, is_invisible, is_tag};

pub(super) fn find(text: &str) -> Option<ScanMatch> {
    // Some editors save a byte order mark at the beginning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut before = ' ';
    for c in text.chars() {
        let found = match c {
            _ if is_bidi_control(c) => Some((
                "bidi",
                "it contains bidirectional control characters, which change how the text appears",
            )),
            _ if is_tag(c) => Some(("tags", "it hides text in tag characters")),
            _ if is_invisible(c) => Some(("invisible", "it contains invisible characters")),
            // Joiners are legitimate in Persian and in emoji; inside a Latin word they hide it from the scan.
            '\u{200c}' | '\u{200d}' if before.is_ascii_alphanumeric() => {
                Some(("joiner", "it contains invisible characters within words"))
            }
            _ if is_selector(c) && is_selector(before) => {
                Some(("selectors", "it hides text in variation selectors"))
            }
            '\n' | '\r' | '\t' => None,
            _ if c.is_control() => Some(("control", "it contains control characters")),
            _ => None,
        };
        if let Some((pattern, description)) = found {
            return Some(ScanMatch { pattern, description });
        }
        before = c;
    }
    let has_lookalikes = text.split(|c: char| !c.is_alphabetic()).any(mixes_alphabets);
    has_lookalikes.then_some(ScanMatch {
        pattern: "lookalikes",
        description: "it contains words that mix Latin letters with Cyrillic or Greek ones",
    })
}

/// Returns whether a word mixes Latin letters with letters of other alphabets that look like them.
fn mixes_alphabets(word: &str) -> bool {
    let is_other = |c: char| matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}');
    word.chars().filter(char::is_ascii_alphabetic).count() > 1
        && word.chars().filter(|c| is_other(*c)).count() > 1
}

/// Returns whether a character is a variation selector. One selects the glyph of the character before it;
/// several in a row encode hidden text.
fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}
