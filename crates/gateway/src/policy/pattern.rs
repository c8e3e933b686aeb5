use std::fmt;

/// A name, or the beginning of names followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `db.*` is everything below `db.`, and not `db.` itself.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(beginning) => name.len() > beginning.len() && name.starts_with(beginning),
        None => pattern == name,
    }
}

/// `*` stands for any run of letters, wherever it is.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    match last {
        Some(end) => rest.ends_with(end),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, name, expected) in [
            ("db.*", "db.task.get", true),
            ("db.*", "db.", false),
            ("db.*", "dbx.task", false),
            ("api.call", "api.call", true),
            ("api.call", "api.caller", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("https://docs.example.com/*", "https://docs.example.com/a/b", true),
            ("https://docs.example.com/*", "https://docs.example.com.evil/", false),
            ("*.md", "notes/readme.md", true),
            ("*.md", "notes/readme.mdx", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("aa*aa", "aaa", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
