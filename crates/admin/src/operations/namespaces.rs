//! Names of servers. They prefix tool names that people read, so no two names may look alike. Does no I/O.

use policy::FAMILIES;

use crate::Error;

const FIELD: &str = "namespace";
const MAX_BYTES: usize = 32;

/// Checks that a server may be registered under a name. Reserved names are for administrators only; names
/// that look like a reserved or an existing name are refused.
pub(super) fn check(name: &str, is_admin: bool, existing: &[String]) -> Result<(), Error> {
    if !is_name(name) {
        let message = format!(
            "must be 2 to {MAX_BYTES} characters: a lowercase letter, then lowercase letters, digits and \
             hyphens"
        );
        return Err(Error::invalid(FIELD, message));
    }
    if FAMILIES.contains(&name) {
        if !is_admin {
            let why = format!("`{name}` is reserved; only an administrator may register a server there");
            return Err(Error::invalid(FIELD, why));
        }
    } else if let Some(family) = FAMILIES.into_iter().find(|family| fold_name(family) == fold_name(name)) {
        return Err(Error::invalid(FIELD, format!("looks like `{family}`; choose another name")));
    }
    match existing.iter().find(|known| fold_name(known) == fold_name(name)) {
        Some(known) if known == name => Err(Error::Conflict(format!("a server `{name}` already exists"))),
        Some(known) => Err(Error::invalid(FIELD, format!("looks like `{known}`; choose another name"))),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && (2..=MAX_BYTES).contains(&name.len())
        && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-')
}

/// Maps characters that look alike to one and drops separators.
fn fold_name(name: &str) -> String {
    let alike = |letter| match letter {
        '_' | '-' => None,
        '0' => Some('o'),
        '1' | 'i' => Some('l'),
        other => Some(other),
    };
    name.chars().filter_map(alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_taken_and_lookalike_names_are_refused() {
        let existing = ["billing".to_owned(), "notes-2".to_owned()];
        for (name, is_admin, expected) in [
            ("calendar", false, None),
            ("a1", false, None),
            ("git", true, None),
            ("git", false, Some("invalid")),
            ("g1t", true, Some("invalid")),
            ("billing", true, Some("conflict")),
            ("bi11ing", true, Some("invalid")),
            ("notes2", true, Some("invalid")),
            ("Calendar", true, Some("invalid")),
            ("a", true, Some("invalid")),
            ("1a", true, Some("invalid")),
            ("a.b", true, Some("invalid")),
            ("a b", true, Some("invalid")),
            ("ünder", true, Some("invalid")),
            (&"a".repeat(33), true, Some("invalid")),
        ] {
            let found = check(name, is_admin, &existing).err();
            assert_eq!(found.as_ref().map(Error::code), expected, "{name}");
        }
    }
}
