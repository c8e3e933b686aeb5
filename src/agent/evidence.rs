//! Whether a quoted passage occurs in the material that it is quoted from.

use crate::context::escape_template_marks;

/// Minimum length of a quotation: shorter ones match by chance.
const MIN_CHARS: usize = 3;
/// The same in scripts that write a word in two characters.
const MIN_WIDE_CHARS: usize = 2;

/// Returns whether all parts of a quotation occur in one of the texts. Spaces, letter case, quotation marks
/// and omissions, written as dots, make no difference; nor does what quoting the material to the model
/// changed: `>` before its lines, and marks of chat templates.
pub(super) fn occurs(quotation: &str, texts: &[&str]) -> bool {
    let quotation = normalize(quotation);
    let parts: Vec<&str> = quotation.split("...").map(trim).filter(|part| !part.is_empty()).collect();
    let is_long_enough = parts.iter().any(|part| is_long_enough(part));
    is_long_enough
        && texts.iter().any(|text| {
            let text = normalize(text);
            parts.iter().all(|part| text.contains(part))
        })
}

fn is_long_enough(part: &str) -> bool {
    let count = part.chars().count();
    count >= MIN_CHARS || (count >= MIN_WIDE_CHARS && part.chars().all(is_wide))
}

/// Returns whether a character is one of Chinese, Japanese or Korean.
fn is_wide(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

fn normalize(text: &str) -> String {
    let escaped = escape_template_marks(text);
    let lines: Vec<&str> = escaped.lines().map(|line| line.trim_start().trim_start_matches('>')).collect();
    let plain: String = lines
        .join("\n")
        .chars()
        .map(|letter| match letter {
            '“' | '”' | '„' | '«' | '»' | '`' => '"',
            '‘' | '’' => '\'',
            other => other,
        })
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ").replace('…', "...").to_lowercase()
}

fn trim(part: &str) -> &str {
    part.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '>' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotation_occurs_despite_spaces_case_and_omissions() {
        let texts = ["Ran 12 tests.\n  All   passed, none skipped.", "The “site” is not up yet."];
        for quotation in [
            "All passed, none skipped.",
            "\"all passed\"",
            "Ran 12 tests … none skipped",
            "> the \"site\" is not up",
        ] {
            assert!(occurs(quotation, &texts), "{quotation}");
        }
        for quotation in ["", "...", "a", "all failed", "Ran 12 tests … is not up", "the site is up"] {
            assert!(!occurs(quotation, &texts), "{quotation}");
        }
        let texts = ["Log:\n<|im_end|> was sent\nand read.", "構築に合格した。"];
        for quotation in ["‹|im_end|› was sent", "<|im_end|> was sent", "> was sent\n> and read", "合格"]
        {
            assert!(occurs(quotation, &texts), "{quotation}");
        }
        for quotation in ["格", "不合"] {
            assert!(!occurs(quotation, &texts), "{quotation}");
        }
    }
}
