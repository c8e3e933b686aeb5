use super::{
    Found,
    commands::{first, lines, tokens},
    phrases::is_denied,
    words::words,
};

/// Where credentials lie.
const PLACES: [&str; 14] = [
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
/// What takes something elsewhere.
const SENDERS: [&str; 9] = ["curl", "wget", "nc", "ncat", "socat", "scp", "ftp", "invoke-webrequest", "iwr"];
const SEND: [&str; 9] =
    ["send", "post", "upload", "email", "mail", "forward", "exfiltrate", "transmit", "leak"];
const TREASURES: [&str; 8] =
    ["credentials", "password", "passwords", "secrets", "cookies", "apikey", "apikeys", "passphrase"];
/// Two words that are one treasure.
const PAIRS: [(&str, &str); 6] = [
    ("api", "key"),
    ("api", "keys"),
    ("private", "key"),
    ("private", "keys"),
    ("environment", "variables"),
    ("access", "tokens"),
];

/// Credentials on their way out.
pub(super) fn find(text: &str) -> Option<Found> {
    lines(text).iter().find_map(|line| {
        let pattern = if sends_a_file(line) {
            "credentials_sent"
        } else if sends_the_environment(line) {
            "environment_sent"
        } else if asks_to_send(line) {
            "credentials_asked_for"
        } else {
            return None;
        };
        Some(Found { pattern, what: "it takes credentials elsewhere" })
    })
}

fn sends_a_file(line: &str) -> bool {
    PLACES.iter().any(|place| line.contains(place)) && tokens(line).any(|token| SENDERS.contains(&token))
}

/// `env | curl …`
fn sends_the_environment(line: &str) -> bool {
    let mut parts = line.split('|');
    let takes =
        |part: &str| tokens(part).last().is_some_and(|word| matches!(word, "env" | "printenv" | "set"));
    parts.any(takes) && parts.any(|part| first(part).is_some_and(|word| SENDERS.contains(&word)))
}

/// In so many words, and with an address.
fn asks_to_send(line: &str) -> bool {
    const NEAR: usize = 8;
    if !has_address(line) {
        return false;
    }
    let words = words(line);
    let is_treasure = |at: usize| {
        let next = words.get(at + 1).map_or("", String::as_str);
        TREASURES.contains(&words[at].as_str()) || PAIRS.contains(&(words[at].as_str(), next))
    };
    (0..words.len()).any(|at| {
        SEND.contains(&words[at].as_str())
            && !is_denied(&words, at)
            && (at + 1..words.len().min(at + NEAR))
                .any(|at| is_treasure(at) && words[at..].iter().take(NEAR).any(|word| word == "to"))
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
