//! Validates the paths of artifacts and memories.

use contract::artifact::MAX_PATH_BYTES;
use unicode_normalization::is_nfc;

use crate::{ToolError, arguments::characters::is_hidden};

/// Longest name of a file or folder, as file systems have it.
const MAX_PART_BYTES: usize = 255;

/// Checks that a path means the same on every system and cannot escape its folder: relative, with forward
/// slashes, without `.` and `..`, and without invisible characters.
pub(crate) fn check(path: &str) -> Result<(), ToolError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(ToolError::TooLarge { what: "path", size: path.len(), limit: MAX_PATH_BYTES });
    }
    find_fault(path).map_or(Ok(()), |why| Err(ToolError::Invalid(format!("the path {why}"))))
}

/// Checks also that the path does not look like another: agents cite memories by their paths.
pub(crate) fn check_citable(path: &str) -> Result<(), ToolError> {
    check(path)?;
    find_likeness(path).map_or(Ok(()), |why| Err(ToolError::Invalid(format!("the path {why}"))))
}

fn find_likeness(path: &str) -> Option<&'static str> {
    // They only change how their neighbours are drawn, if anything.
    let is_joiner = |c| matches!(c, '\u{200c}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}');
    if path.contains(is_joiner) {
        Some("has invisible characters")
    } else if path.split('/').any(|part| part != part.trim()) {
        Some("has a part that begins or ends with a space")
    } else if !is_nfc(path) {
        Some("is not in the Unicode form NFC")
    } else {
        None
    }
}

fn find_fault(path: &str) -> Option<&'static str> {
    let mut parts = path.split('/');
    if path.is_empty() {
        Some("is empty")
    } else if path.starts_with('/') {
        Some("must be relative")
    } else if path.contains('\\') {
        Some("has a backslash; parts are separated by /")
    } else if path.chars().any(|c| c.is_control() || is_hidden(c)) {
        Some("has invisible characters")
    } else if path.as_bytes().get(1) == Some(&b':') {
        Some("begins with a drive")
    } else if parts.clone().any(|part| matches!(part, "." | "..")) {
        Some("has `.` or `..` in it")
    } else if parts.clone().any(|part| part.len() > MAX_PART_BYTES) {
        Some("has a part of more than 255 bytes")
    } else if parts.any(|part| part.trim().is_empty()) {
        Some("has an empty part")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_portable_relative_paths_are_accepted() {
        for good in ["a", "a/b.txt", "über/ein weg/.hidden", "a..b/...", "日本.md"] {
            assert_eq!(find_fault(good), None, "{good}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            "./a",
            "a/.",
            "a\\b",
            "a\nb",
            "a\0",
            "C:/a",
            "a/ /b",
            "a\u{202e}b",
            "a\u{200b}b",
        ] {
            assert!(find_fault(bad).is_some(), "{bad:?}");
        }
        assert!(check(&format!("{0}/{0}", "a".repeat(255))).is_ok());
        assert!(check(&"a".repeat(256)).is_err());
        assert!(matches!(check(&"a".repeat(513)), Err(ToolError::TooLarge { .. })));
    }

    #[test]
    fn memories_are_not_duplicated() {
        for good in ["a", "über/ein weg/.hidden", "日本.md"] {
            assert_eq!(find_likeness(good), None, "{good}");
        }
        for bad in ["a\u{200d}b", "a.md\u{fe0f}", "a.md\u{200e}", "a.md ", "a /b", "u\u{308}ber"] {
            assert!(find_likeness(bad).is_some() && check_citable(bad).is_err(), "{bad:?}");
        }
    }
}
