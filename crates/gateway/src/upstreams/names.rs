/// Clients and models take no longer names, and most take no other letters.
const LONGEST: usize = 96;

/// What a tool of a server is called here. A namespace has no dot, so the first dot always parts the two.
pub fn served_name(namespace: &str, prefix: bool, remote: &str) -> String {
    if prefix { format!("{namespace}.{remote}") } else { remote.to_owned() }
}

/// What is wrong with a name, if anything is.
pub(super) fn problem(name: &str) -> Option<&'static str> {
    let fine = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    if name.is_empty() || name.len() > LONGEST {
        Some("its name is empty or too long")
    } else if !name.chars().all(fine) {
        Some("its name has other letters than a-z, A-Z, 0-9, _, - and .")
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") || name.contains("__") {
        Some("its name has dots or underlines where they mislead")
    } else {
        None
    }
}

/// Names that people or clients could take for each other have the same one of these: clients put `_` for dots and dashes,
/// and people do not see whether it is a one or an l.
pub fn folded(name: &str) -> String {
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
    fn names_that_mislead() {
        for name in ["", "a..b", ".a", "a.", "a__b", "täst", "a b", "a\u{200b}b", &"x".repeat(97)] {
            assert!(problem(name).is_some(), "{name}");
        }
        for name in ["web.fetch", "Get-Weather_2", "a"] {
            assert!(problem(name).is_none(), "{name}");
        }
    }

    #[test]
    fn look_alikes_are_alike() {
        assert_eq!(folded("db.task.get"), folded("DB_task-get"));
        assert_eq!(folded("mail.list"), folded("mai1.l1st"));
        assert_ne!(folded("db.task.get"), folded("db.task.set"));
    }
}
