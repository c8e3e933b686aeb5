use super::Found;

/// Characters that do not show, or that make a text show other than it is.
pub(in crate::tools) fn is_hidden(c: char) -> bool {
    is_invisible(c) || is_turning(c) || is_tag(c)
}

pub(super) fn find(text: &str) -> Option<Found> {
    // A mark of the byte order at the very beginning is how some editors save.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut before = ' ';
    for c in text.chars() {
        let what = match c {
            _ if is_turning(c) => {
                Some(("bidi", "it turns the direction of writing, to show other than it is"))
            }
            _ if is_tag(c) => Some(("tags", "it hides text in tag characters")),
            _ if is_invisible(c) => Some(("invisible", "it holds characters that do not show")),
            // Joiners are needed to write Persian and to join emoji; in the middle of a Latin word they hide it.
            '\u{200c}' | '\u{200d}' if before.is_ascii_alphanumeric() => {
                Some(("joiner", "it holds characters that do not show within words"))
            }
            _ if is_selector(c) && is_selector(before) => {
                Some(("selectors", "it hides text in variation selectors"))
            }
            '\n' | '\r' | '\t' => None,
            _ if c.is_control() => Some(("control", "it holds control characters")),
            _ => None,
        };
        if let Some((pattern, what)) = what {
            return Some(Found { pattern, what });
        }
        before = c;
    }
    None
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}')
}

fn is_turning(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_tag(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// One chooses the shape of the character before it; several in a row are a code.
fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}
