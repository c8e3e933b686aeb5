//! Values as text for people.

const MAX_EXCERPT_CHARS: usize = 100;

/// Returns the serialized name of an enum value, with spaces instead of underscores; `?` if it is not a
/// string.
pub fn label(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        Ok(_) | Err(_) => "?".to_owned(),
    }
}

/// Returns the first 100 characters of a text on one line. The caller must escape it for its output.
pub fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Formats a number of bytes with a binary unit.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (bytes as f64, None);
    for name in UNITS {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, Some(name));
    }
    unit.map_or_else(|| format!("{bytes} B"), |unit| format!("{size:.1} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_one_line_of_at_most_100_characters() {
        assert_eq!(excerpt(" one\n\ttwo  "), "one two");
        assert_eq!(excerpt(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(excerpt(&"ä".repeat(101)), format!("{}…", "ä".repeat(100)));
    }

    #[test]
    fn sizes_have_a_matching_unit() {
        assert_eq!([0, 1023, 1024, 3 << 20].map(format_size), ["0 B", "1023 B", "1.0 KiB", "3.0 MiB"]);
    }
}
