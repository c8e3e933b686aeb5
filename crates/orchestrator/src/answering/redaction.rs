//! Replaces secrets in what users write, before anything else sees it.

use secrets::redact_by_kind;

/// Joins the parts of a message, without their secrets. Parts are joined by a line break, unless a secret
/// reaches from one into the next: then they are joined as they are, so that all of it is found.
pub(crate) fn join_redacted(parts: &[&str]) -> String {
    if let [only] = parts {
        return redact_by_kind(only).into_owned();
    }
    let each: Vec<_> = parts.iter().map(|part| redact_by_kind(part)).collect();
    let joined = parts.concat();
    let whole = redact_by_kind(&joined);
    if whole == each.concat() { each.join("\n") } else { whole.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G11: a secret is found also if it is split over two parts of a message.
    #[test]
    fn a_secret_across_two_parts_is_replaced() {
        let secret = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";
        for cut in 1..secret.len() {
            let text = format!("use sk-{secret} now");
            let (first, second) = text.split_at("use sk-".len() + cut);
            let joined = join_redacted(&[first, second]);
            assert!(joined.contains("[redacted:model_key]"), "{joined}");
            assert!(
                !joined.contains(&secret[..8]) && !joined.contains(&secret[secret.len() - 8..]),
                "{joined}"
            );
        }
        assert_eq!(join_redacted(&["password=", "hunter2"]), "password=[redacted:secret]");
    }

    #[test]
    fn other_parts_are_joined_by_a_line_break() {
        assert_eq!(join_redacted(&["one", "two"]), "one\ntwo");
        assert_eq!(join_redacted(&["one"]), "one");
        assert_eq!(join_redacted(&[]), "");
    }
}
