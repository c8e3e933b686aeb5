//! Texts that are joined: the parts of a message, or messages. Each is scanned alone, and all of them
//! together, since a secret may be split over two of them.

use std::borrow::Cow;

use secrets::redact_by_kind;

/// Prefix of the text that replaces a secret.
const MARK: &str = "[redacted:";

/// Joins texts without their secrets: by a line break, unless a secret reaches from one into the next. Then
/// they are joined as they are, so that all of it is found.
pub(crate) fn join_redacted(texts: &[&str]) -> String {
    if let [only] = texts {
        return redact_by_kind(only).into_owned();
    }
    let each = redact_each(texts);
    across_redacted(texts, &each).unwrap_or_else(|| each.join("\n"))
}

/// Returns the joined texts without their secrets if a secret reaches from one into the next, with or without
/// a line break between them. `None` if each can be redacted alone.
pub(crate) fn across(texts: &[&str]) -> Option<String> {
    across_redacted(texts, &redact_each(texts))
}

fn redact_each<'t>(texts: &[&'t str]) -> Vec<Cow<'t, str>> {
    texts.iter().copied().map(redact_by_kind).collect()
}

fn across_redacted(texts: &[&str], each: &[Cow<'_, str>]) -> Option<String> {
    let (joined, expected) = concat(texts, each);
    let whole = redact_by_kind(&joined);
    if whole != expected {
        return Some(whole.into_owned());
    }
    let lines = each.join("\n");
    match redact_by_kind(&lines) {
        redacted if redacted != lines => Some(redacted.into_owned()),
        _ => None,
    }
}

/// Joins texts as they are, and what became of each. A text whose secret would not be found beside the one
/// before or after it, such as `sk-…` after a letter, begins a line.
fn concat(texts: &[&str], each: &[Cow<'_, str>]) -> (String, String) {
    let (mut joined, mut expected) = (String::new(), String::new());
    let mut before: Option<(&str, usize)> = None;
    for (text, redacted) in texts.iter().copied().zip(each).filter(|(text, _)| !text.is_empty()) {
        let marks = redacted.matches(MARK).count();
        if let Some((text_before, marks_before)) = before
            && marks + marks_before > 0
            && redact_by_kind(&[text_before, text].concat()).matches(MARK).count() < marks + marks_before
        {
            joined.push('\n');
            expected.push('\n');
        }
        joined.push_str(text);
        expected.push_str(redacted);
        before = Some((text, marks));
    }
    (joined, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

    /// G11: a secret is found also if it is split over two parts of a message.
    #[test]
    fn a_secret_across_two_parts_is_replaced() {
        for cut in 1..BODY.len() {
            let text = format!("use sk-{BODY} now");
            let (first, second) = text.split_at("use sk-".len() + cut);
            let joined = join_redacted(&[first, second]);
            assert!(joined.contains("[redacted:model_key]"), "{joined}");
            assert!(!joined.contains(&BODY[..8]) && !joined.contains(&BODY[BODY.len() - 8..]), "{joined}");
        }
        assert_eq!(join_redacted(&["password=", "hunter2"]), "password=[redacted:secret]");
    }

    #[test]
    fn a_secret_across_many_parts_is_replaced() {
        let text = format!("use sk-{BODY} now");
        for size in [1, 3, 7] {
            let pieces: Vec<String> =
                text.as_bytes().chunks(size).map(|it| String::from_utf8_lossy(it).into_owned()).collect();
            let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(join_redacted(&parts), "use [redacted:model_key] now", "{size}");
        }
    }

    /// The line break that joins two parts may make a value of the second one.
    #[test]
    fn a_secret_on_the_line_after_its_name_is_replaced() {
        assert_eq!(join_redacted(&["Password", "hunter2"]), "Password\n[redacted:secret]");
        assert_eq!(join_redacted(&["Hello.", "Password", "hunter2"]), "Hello.\nPassword\n[redacted:secret]");
    }

    /// A letter before a key, or a word after a password, makes it look like none.
    #[test]
    fn a_secret_that_only_one_part_shows_is_replaced() {
        let key = format!("sk-{BODY}");
        assert_eq!(join_redacted(&["abc", &key]), "abc\n[redacted:model_key]");
        assert_eq!(join_redacted(&["abc", "", &key]), "abc\n\n[redacted:model_key]");
        let joined = join_redacted(&["Password:\ncorrecthorse", " is mine"]);
        assert!(!joined.contains("correcthorse"), "{joined}");
        let joined = join_redacted(&["abc", &key, " password=", "hunter2"]);
        assert_eq!(joined, "abc\n[redacted:model_key] password=[redacted:secret]");
    }

    #[test]
    fn other_parts_are_joined_by_a_line_break() {
        assert_eq!(join_redacted(&["one", "two"]), "one\ntwo");
        assert_eq!(join_redacted(&["one"]), "one");
        assert_eq!(join_redacted(&[]), "");
        assert_eq!(across(&["one", "two"]), None);
    }
}
