//! Validates references to container images.

pub(super) const MAX_REFERENCE_BYTES: usize = 512;
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// Checks a reference against the grammar of registries and container engines:
/// `registry:port/path/name:tag@digest`.
pub(crate) fn check(reference: &str) -> Result<(), &'static str> {
    if reference.len() > MAX_REFERENCE_BYTES {
        return Err("the reference is longer than 512 bytes");
    }
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    if !digest.is_none_or(is_digest) {
        return Err("the digest is not `sha256:` with 64 lowercase hexadecimal digits");
    }
    // A colon before the last slash belongs to the port of the registry.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((end, tag)) => (&rest[..last + end.len()], Some(tag)),
        None => (rest, None),
    };
    if !tag.is_none_or(is_tag) {
        return Err(
            "the tag is not one: letters, digits, `_`, `.` and `-`, 128 at most, no `.` or `-` first",
        );
    }
    if name.len() > MAX_NAME_BYTES {
        return Err("the name is longer than 255 bytes");
    }
    let parts: Vec<&str> = name.split('/').collect();
    let path = match parts.split_first() {
        Some((first, path)) if !path.is_empty() && is_registry(first) => path,
        _ => &parts[..],
    };
    if !path.iter().all(|part| is_part(part)) {
        return Err(
            "the name is not one: parts of lowercase letters and digits, joined by `.`, `_`, `__` or `-`",
        );
    }
    Ok(())
}

/// Returns whether the first part of a name is a registry: `localhost`, or a host with a dot or a port.
fn is_registry(part: &str) -> bool {
    let (host, port) = part.split_once(':').unwrap_or((part, ""));
    let has_port = part.contains(':');
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    (host == "localhost" || host.contains('.') || has_port)
        && host.split('.').all(is_label)
        && (is_port || !has_port)
}

fn is_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let has_valid_ends =
        part.bytes().next().is_some_and(is_word) && part.bytes().next_back().is_some_and(is_word);
    // Between words: one dot, one or two underscores, any number of hyphens.
    let mut separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    has_valid_ends
        && separators.all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG_BYTES).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:");
    hex.is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_the_grammar_of_registries() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for good in [
            "alpine",
            "alpine:3.20",
            "library/alpine",
            "docker.io/library/alpine:latest",
            "localhost/app",
            "localhost:5000/a/b_c/d--e.f:V1.2-rc_3",
            "registry.example.com:443/app",
            &format!("ghcr.io/org/app:1@{digest}"),
            &format!("app@{digest}"),
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "Alpine",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-1",
            "a:b:c",
            "a b",
            "a@sha256:12",
            "a@md5:0a",
            "a@",
            "-a",
            "a_",
            "a..b",
            "a___b",
            "host.example:99999999/a",
            "host.example:/a",
            "ex ample.com/a",
            "https://example.com/a",
            "a;rm",
            "a\n",
            "é",
            &"a".repeat(256),
            &format!("a:{}", "b".repeat(129)),
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
