/// So much of a text is enough to know it by.
const MOST_CHARS: usize = 100;

/// A word of the contract, as it is written there.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        Ok(_) | Err(_) => "?".to_owned(),
    }
}

/// The beginning of a text, on one line. Whoever shows it makes it safe for where it is shown.
pub fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// How many bytes, for people.
pub fn size(bytes: u64) -> String {
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
    fn an_excerpt_is_one_line_and_not_long() {
        assert_eq!(excerpt(" one\n\ttwo  "), "one two");
        assert_eq!(excerpt(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(excerpt(&"ä".repeat(101)), format!("{}…", "ä".repeat(100)));
    }

    #[test]
    fn sizes_have_a_unit_that_fits() {
        assert_eq!([0, 1023, 1024, 3 << 20].map(size), ["0 B", "1023 B", "1.0 KiB", "3.0 MiB"]);
    }
}
