//! Names for servers. Tools are told apart by them, by people too, so no two may look alike.

use crate::{admin::Error, policy::FAMILIES};

const FIELD: &str = "namespace";
const LONGEST: usize = 32;

/// Whether a server may be registered under this name by an administrator, or by a user.
pub(super) fn check(name: &str, is_admin: bool, existing: &[String]) -> Result<(), Error> {
    if !is_name(name) {
        let right = format!(
            "must be 2 to {LONGEST} characters: a small letter first, then small letters, digits and hyphens"
        );
        return Err(Error::invalid(FIELD, right));
    }
    if FAMILIES.contains(&name) {
        if !is_admin {
            let why = format!("`{name}` means something here; only an administrator may put a server there");
            return Err(Error::invalid(FIELD, why));
        }
    } else if let Some(family) = FAMILIES.into_iter().find(|family| folded(family) == folded(name)) {
        return Err(Error::invalid(FIELD, format!("looks like `{family}`; choose another name")));
    }
    match existing.iter().find(|known| folded(known) == folded(name)) {
        Some(known) if known == name => Err(Error::Conflict(format!("there is a server `{name}` already"))),
        Some(known) => Err(Error::invalid(FIELD, format!("looks like `{known}`; choose another name"))),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && (2..=LONGEST).contains(&name.len())
        && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-')
}

/// What is left when letters that look alike are the same.
fn folded(name: &str) -> String {
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
    fn names_that_are_wrong_taken_or_alike_are_refused() {
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
