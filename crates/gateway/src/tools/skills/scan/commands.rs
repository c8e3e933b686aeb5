use super::Found;

pub(super) const FETCHERS: [&str; 8] =
    ["curl", "wget", "iwr", "irm", "invoke-webrequest", "invoke-restmethod", "nc", "ncat"];
const SHELLS: [&str; 11] =
    ["sh", "bash", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "iex", "invoke-expression", "source"];
/// These run what comes in only when they are told nothing else.
const INTERPRETERS: [&str; 6] = ["python", "python3", "perl", "ruby", "node", "php"];
const WRAPPERS: [&str; 5] = ["sudo", "env", "exec", "nohup", "command"];

const WHAT: &str = "it runs what comes from the network";

/// Commands that take something from elsewhere and run it unseen.
pub(super) fn find(text: &str) -> Option<Found> {
    lines(text).iter().find_map(|line| {
        let pattern = if piped(line) {
            "network_into_shell"
        } else if substituted(line) {
            "network_substituted"
        } else if decoded(line) {
            "decoded_into_shell"
        } else if expressed(line) {
            "downloaded_expression"
        } else {
            return None;
        };
        Some(Found { pattern, what: WHAT })
    })
}

/// Lines as a shell takes them, in lower case: one that ends with a backslash, or with a pipe, goes on.
pub(super) fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let line = line.trim_end();
        let part = line.strip_suffix('\\').unwrap_or(line).to_lowercase();
        match lines.last_mut() {
            Some(last) if goes_on => {
                last.push(' ');
                last.push_str(&part);
            }
            _ => lines.push(part),
        }
        goes_on = line.ends_with('\\') || line.ends_with('|');
    }
    lines
}

/// `curl … | bash`
fn piped(line: &str) -> bool {
    let mut fetched = false;
    for part in line.split('|') {
        if fetched && runs_its_input(part) {
            return true;
        }
        // A name alone, as in a table, fetches nothing.
        fetched |= tokens(part).any(|token| FETCHERS.contains(&token)) && tokens(part).count() > 1;
    }
    false
}

/// `base64 -d … | sh`
fn decoded(line: &str) -> bool {
    let mut was_decoded = false;
    for part in line.split('|') {
        if was_decoded && runs_its_input(part) {
            return true;
        }
        let decodes = tokens(part).any(|token| matches!(token, "-d" | "--decode"));
        was_decoded |= decodes && tokens(part).any(|token| matches!(token, "base64" | "base32"));
    }
    false
}

/// `bash -c "$(curl …)"`, `bash <(curl …)`, `eval "$(wget …)"`
fn substituted(line: &str) -> bool {
    ["$(", "`", "<("].iter().any(|opening| {
        line.match_indices(opening).any(|(at, _)| {
            let inside = &line[at + opening.len()..];
            let command = line[..at].rsplit([';', '&', '|']).next().unwrap_or_default();
            let runs = |word: &str| SHELLS.contains(&word) || matches!(word, "eval" | ".");
            first(inside).is_some_and(|word| FETCHERS.contains(&word)) && first(command).is_some_and(runs)
        })
    })
}

/// `iex (New-Object Net.WebClient).DownloadString(…)`
fn expressed(line: &str) -> bool {
    let runs = tokens(line).any(|token| matches!(token, "iex" | "invoke-expression"));
    let loads = ["downloadstring", "invoke-webrequest", "invoke-restmethod", "iwr ", "irm "];
    runs && loads.iter().any(|load| line.contains(load))
}

fn runs_its_input(part: &str) -> bool {
    let mut words = tokens(part).skip_while(|word| WRAPPERS.contains(word) || word.contains('='));
    let Some(program) = words.next() else { return false };
    let program = program.rsplit('/').next().unwrap_or(program);
    if SHELLS.contains(&program) {
        return true;
    }
    INTERPRETERS.contains(&program) && words.next().is_none_or(|next| next == "-")
}

/// The program that a command begins with.
pub(super) fn first(command: &str) -> Option<&str> {
    let program = tokens(command).find(|word| !WRAPPERS.contains(word) && !word.contains('='))?;
    program.rsplit('/').next()
}

pub(super) fn tokens(part: &str) -> impl Iterator<Item = &str> {
    let is_between =
        |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '(' | ')' | '$' | ';' | '&' | '>');
    part.split(is_between).filter(|token| !token.is_empty())
}
