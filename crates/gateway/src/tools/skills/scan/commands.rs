//! Finds commands that download or decode code and run it.

use super::ScanMatch;

pub(super) const FETCHERS: [&str; 8] =
    ["curl", "wget", "iwr", "irm", "invoke-webrequest", "invoke-restmethod", "nc", "ncat"];
const SHELLS: [&str; 11] =
    ["sh", "bash", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "iex", "invoke-expression", "source"];
/// These run their standard input only when called without a script or other argument.
const INTERPRETERS: [&str; 6] = ["python", "python3", "perl", "ruby", "node", "php"];
const WRAPPERS: [&str; 5] = ["sudo", "env", "exec", "nohup", "command"];

const DESCRIPTION: &str = "it runs code from the network or from an encoded text";

/// Finds the first command that runs code from the network or from an encoded text.
pub(super) fn find(text: &str) -> Option<ScanMatch> {
    lines(text).iter().find_map(|line| {
        let pattern = if pipes_download_into_shell(line) {
            "network_into_shell"
        } else if substitutes_download(line) {
            "network_substituted"
        } else if pipes_decoded_into_shell(line) {
            "decoded_into_shell"
        } else if evaluates_download(line) {
            "downloaded_expression"
        } else {
            return None;
        };
        Some(ScanMatch { pattern, description: DESCRIPTION })
    })
}

/// Splits a text into command lines in lower case. A line that ends with a backslash or a pipe continues on
/// the next one.
pub(super) fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let line = line.trim_end();
        let part = line.strip_suffix('\\').unwrap_or(line).to_lowercase();
        match lines.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(&part);
            }
            _ => lines.push(part),
        }
        continues = line.ends_with('\\') || line.ends_with('|');
    }
    lines
}

/// `curl … | bash`
fn pipes_download_into_shell(line: &str) -> bool {
    let mut fetched = false;
    for part in line.split('|') {
        if fetched && runs_its_input(part) {
            return true;
        }
        // A name alone, for example in a table, downloads nothing.
        fetched |= tokens(part).any(|token| FETCHERS.contains(&token)) && tokens(part).count() > 1;
    }
    false
}

/// `base64 -d … | sh`
fn pipes_decoded_into_shell(line: &str) -> bool {
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
fn substitutes_download(line: &str) -> bool {
    ["$(", "`", "<("].iter().any(|opening| {
        line.match_indices(opening).any(|(at, _)| {
            let inside = &line[at + opening.len()..];
            let command = line[..at].rsplit([';', '&', '|']).next().unwrap_or_default();
            let runs = |word: &str| SHELLS.contains(&word) || matches!(word, "eval" | ".");
            program(inside).is_some_and(|word| FETCHERS.contains(&word)) && program(command).is_some_and(runs)
        })
    })
}

/// `iex (New-Object Net.WebClient).DownloadString(…)`
fn evaluates_download(line: &str) -> bool {
    let runs = tokens(line).any(|token| matches!(token, "iex" | "invoke-expression"));
    let loads = ["downloadstring", "invoke-webrequest", "invoke-restmethod", "iwr ", "irm "];
    runs && loads.iter().any(|load| line.contains(load))
}

/// Returns whether a command of a pipeline runs its standard input as code.
fn runs_its_input(part: &str) -> bool {
    let mut words = tokens(part).skip_while(|word| WRAPPERS.contains(word) || word.contains('='));
    let Some(program) = words.next() else { return false };
    let program = program.rsplit('/').next().unwrap_or(program);
    if SHELLS.contains(&program) {
        return true;
    }
    INTERPRETERS.contains(&program) && words.next().is_none_or(|next| next == "-")
}

/// Returns the program that a command starts, without its path.
pub(super) fn program(command: &str) -> Option<&str> {
    let program = tokens(command).find(|word| !WRAPPERS.contains(word) && !word.contains('='))?;
    program.rsplit('/').next()
}

/// Splits a command at spaces, quotes and other delimiters.
pub(super) fn tokens(part: &str) -> impl Iterator<Item = &str> {
    let is_delimiter =
        |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '(' | ')' | '$' | ';' | '&' | '>');
    part.split(is_delimiter).filter(|token| !token.is_empty())
}
