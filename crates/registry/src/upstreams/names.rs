//! Names under which upstream tools are served, and how to tell names that look alike.

/// Clients and models accept no longer names.
const MAX_NAME_BYTES: usize = 96;

/// Returns the name under which an upstream tool is served. A namespace contains no dot, so the first dot
/// always separates it from the tool.
pub fn served_name(namespace: &str, prefix: bool, remote: &str) -> String {
    if prefix { format!("{namespace}.{remote}") } else { remote.to_owned() }
}

/// Returns why a name cannot be served, if it cannot. Most clients accept only these characters.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        Some("its name is empty or too long")
    } else if !name.chars().all(is_allowed) {
        Some("its name has characters other than a-z, A-Z, 0-9, _, - and .")
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") || name.contains("__") {
        Some("its name has dots or underscores in misleading places")
    } else {
        None
    }
}

/// Maps names that people or clients could confuse to the same text: clients replace dots and dashes by `_`,
/// and some letters and digits look alike.
pub fn fold_name(name: &str) -> String {
    let fold = |letter: char| match letter.to_ascii_lowercase() {
        '.' | '-' | '_' => '_',
        '0' => 'o',
        '1' | 'i' => 'l',
        other => other,
    };
    name.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_names_have_a_problem() {
        for name in ["", "a..b", ".a", "a.", "a__b", "täst", "a b", "a\u{200b}b", &"x".repeat(97)] {
            assert!(name_problem(name).is_some(), "{name}");
        }
        for name in ["web.fetch", "Get-Weather_2", "a"] {
            assert!(name_problem(name).is_none(), "{name}");
        }
    }

    #[test]
    fn names_that_look_alike_fold_to_the_same_text() {
        assert_eq!(fold_name("db.task.get"), fold_name("DB_task-get"));
        assert_eq!(fold_name("mail.list"), fold_name("mai1.l1st"));
        assert_ne!(fold_name("db.task.get"), fold_name("db.task.set"));
    }
}
