//! Recognises addresses, files and identifiers by their form.

/// Weights of the words inside a form, in thousandths. Words inside identifiers and addresses seldom state
/// the request.
const WORDS_OF_ADDRESS: u64 = 250;
const WORDS_OF_IDENTIFIER: u64 = 500;
const PLAIN_WORDS: u64 = 1000;

const TOP_LEVEL_DOMAINS: &[&str] =
    &["com", "org", "net", "io", "dev", "de", "eu", "uk", "fr", "app", "ai", "co"];

/// What the form means, and the weight of the words inside it, in thousandths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) means: &'static [&'static str],
    pub(crate) strength: u64,
}

pub(crate) fn form_of(chunk: &str) -> Form {
    if let Some(form) = marked_form(chunk) {
        return form;
    }
    let chunk = chunk.trim_matches(|letter: char| !letter.is_alphanumeric());
    address_form(chunk).or_else(|| file_form(chunk)).unwrap_or_else(|| identifier_form(chunk))
}

fn form(means: &'static [&'static str], strength: u64) -> Form {
    Form { means, strength }
}

/// Recognises forms like `#general`, `@anna` and `--verbose` by their first character.
fn marked_form(chunk: &str) -> Option<Form> {
    let starts_with_letter = |rest: &str| rest.starts_with(char::is_alphabetic);
    if chunk.strip_prefix('#').is_some_and(starts_with_letter) {
        return Some(form(&["channel", "message"], WORDS_OF_IDENTIFIER));
    }
    if chunk.strip_prefix('@').is_some_and(starts_with_letter) {
        return Some(form(&["person", "message"], WORDS_OF_IDENTIFIER));
    }
    let is_option =
        chunk.strip_prefix('-').map(|rest| rest.trim_start_matches('-')).is_some_and(starts_with_letter);
    is_option.then(|| form(&["command"], WORDS_OF_IDENTIFIER))
}

fn address_form(chunk: &str) -> Option<Form> {
    if chunk.len() > ".git".len() && chunk.contains('/') && chunk.rsplit('.').next() == Some("git") {
        return Some(form(&["url", "repository"], WORDS_OF_ADDRESS));
    }
    if chunk.contains("://") || chunk.starts_with("www.") {
        return Some(form(&["url", "page"], WORDS_OF_ADDRESS));
    }
    if chunk.split_once('@').is_some_and(|(before, after)| !before.is_empty() && after.contains('.')) {
        return Some(form(&["email", "person"], WORDS_OF_ADDRESS));
    }
    if is_network_address(chunk) {
        return Some(form(&["network", "host"], WORDS_OF_ADDRESS));
    }
    if chunk.split_once('/').is_some_and(|(host, _)| is_domain(host)) {
        return Some(form(&["url", "page"], WORDS_OF_ADDRESS));
    }
    is_domain(chunk).then(|| form(&["domain", "site"], WORDS_OF_ADDRESS))
}

fn is_network_address(chunk: &str) -> bool {
    chunk.split('.').count() == 4 && chunk.split('.').all(|part| part.parse::<u8>().is_ok())
}

fn is_domain(chunk: &str) -> bool {
    chunk.rsplit_once('.').is_some_and(|(before, end)| !before.is_empty() && TOP_LEVEL_DOMAINS.contains(&end))
}

fn file_form(chunk: &str) -> Option<Form> {
    let file = chunk.rsplit('/').next().unwrap_or(chunk);
    // A name with more than one dot is a version or a tool name.
    let is_file = file.split_once('.').is_some_and(|(base, extension)| {
        !base.is_empty()
            && (2..=4).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
    });
    is_file.then(|| form(&["file", "path"], WORDS_OF_IDENTIFIER))
}

fn identifier_form(chunk: &str) -> Form {
    if is_issue_key(chunk) {
        return form(&["ticket"], WORDS_OF_IDENTIFIER);
    }
    let is_numbered = chunk.contains('-') && chunk.ends_with(|letter: char| letter.is_ascii_digit());
    form(&[], if is_numbered || chunk.contains('/') { WORDS_OF_IDENTIFIER } else { PLAIN_WORDS })
}

/// Whether the chunk looks like `ABC-123`.
fn is_issue_key(chunk: &str) -> bool {
    chunk.split_once('-').is_some_and(|(letters, digits)| {
        letters.len() >= 2
            && letters.bytes().all(|byte| byte.is_ascii_uppercase())
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}
