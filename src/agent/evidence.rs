//! Whether a quoted passage occurs in the material that it is quoted from.

/// Shorter quotations occur everywhere.
const MIN_CHARS: usize = 3;

/// Returns whether all parts of a quotation occur in one of the texts. Spaces, letter case, quotation marks
/// and omissions, written as dots, make no difference.
pub(super) fn occurs(quotation: &str, texts: &[&str]) -> bool {
    let quotation = normalize(quotation);
    let parts: Vec<&str> = quotation.split("...").map(trim).filter(|part| !part.is_empty()).collect();
    let is_long_enough = parts.iter().any(|part| part.chars().count() >= MIN_CHARS);
    is_long_enough
        && texts.iter().any(|text| {
            let text = normalize(text);
            parts.iter().all(|part| text.contains(part))
        })
}

fn normalize(text: &str) -> String {
    let plain: String = text
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
    }
}
