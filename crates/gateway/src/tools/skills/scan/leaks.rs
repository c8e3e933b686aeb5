//! Finds commands and sentences that send credentials elsewhere.

use super::{
    ScanMatch,
    commands::{lines, program, tokens},
    phrases::is_negated,
    words::words,
};

/// Files and addresses that hold credentials.
const CREDENTIAL_LOCATIONS: [&str; 14] = [
    ".ssh/id_",
    "id_rsa",
    "id_ed25519",
    ".aws/credentials",
    "/etc/shadow",
    ".netrc",
    ".git-credentials",
    ".docker/config.json",
    ".kube/config",
    ".npmrc",
    ".pypirc",
    "/proc/self/environ",
    "169.254.169.254",
    "metadata.google.internal",
];
/// Programs that send data to another host.
const SENDERS: [&str; 9] = ["curl", "wget", "nc", "ncat", "socat", "scp", "ftp", "invoke-webrequest", "iwr"];
/// Verbs that ask to send something.
const SEND_VERBS: [&str; 9] =
    ["send", "post", "upload", "email", "mail", "forward", "exfiltrate", "transmit", "leak"];
/// Words for credentials.
const CREDENTIALS: [&str; 8] =
    ["credentials", "password", "passwords", "secrets", "cookies", "apikey", "apikeys", "passphrase"];
/// Pairs of words for credentials.
const CREDENTIAL_PAIRS: [(&str, &str); 6] = [
    ("api", "key"),
    ("api", "keys"),
    ("private", "key"),
    ("private", "keys"),
    ("environment", "variables"),
    ("access", "tokens"),
];

/// Finds the first line that sends credentials, or asks for them to be sent.
pub(super) fn find(text: &str) -> Option<ScanMatch> {
    lines(text).iter().find_map(|line| {
        let pattern = if sends_credential_file(line) {
            "credentials_sent"
        } else if sends_environment(line) {
            "environment_sent"
        } else if asks_to_send_credentials(line) {
            "credentials_asked_for"
        } else {
            return None;
        };
        Some(ScanMatch { pattern, description: "it sends credentials elsewhere" })
    })
}

fn sends_credential_file(line: &str) -> bool {
    CREDENTIAL_LOCATIONS.iter().any(|location| line.contains(location))
        && tokens(line).any(|token| SENDERS.contains(&token))
}

/// `env | curl …`
fn sends_environment(line: &str) -> bool {
    let mut parts = line.split('|');
    let is_environment =
        |part: &str| tokens(part).last().is_some_and(|word| matches!(word, "env" | "printenv" | "set"));
    parts.any(is_environment) && parts.any(|part| program(part).is_some_and(|word| SENDERS.contains(&word)))
}

/// Returns whether a sentence asks to send credentials to a URL or mail address.
fn asks_to_send_credentials(line: &str) -> bool {
    /// Words within which verb, credential and `to` must follow each other.
    const MAX_DISTANCE: usize = 8;
    if !has_address(line) {
        return false;
    }
    let words = words(line);
    let is_credential = |at: usize| {
        let next = words.get(at + 1).map_or("", String::as_str);
        CREDENTIALS.contains(&words[at].as_str()) || CREDENTIAL_PAIRS.contains(&(words[at].as_str(), next))
    };
    (0..words.len()).any(|at| {
        SEND_VERBS.contains(&words[at].as_str())
            && !is_negated(&words, at)
            && (at + 1..words.len().min(at + MAX_DISTANCE))
                .any(|at| is_credential(at) && words[at..].iter().take(MAX_DISTANCE).any(|word| word == "to"))
    })
}

fn has_address(line: &str) -> bool {
    let is_mail = |word: &str| {
        word.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && host.trim_end_matches('.').contains('.') && !host.starts_with('.')
        })
    };
    line.contains("http://") || line.contains("https://") || tokens(line).any(is_mail)
}
