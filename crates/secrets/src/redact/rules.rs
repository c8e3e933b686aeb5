//! The rules by which secrets are found: by their shape, or by the place in which they stand.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

use super::{
    guards::{self, Guard},
    notation::{
        BLANK, BLOCK, CLOSED_NAME, LINE_END, MARKS, NAME_END, TAG, before_quote, equals, has_name, name, pair,
    },
};
use crate::shapes::SHAPES;

/// What may precede a secret: a word boundary, an escape sequence of JSON or of a terminal, or a percent
/// escape.
pub(crate) const BEFORE: &str = r"((?-u:\b)|\\[nrt]|\x1b\[[0-9;]*m|%[0-9A-Fa-f]{2})";

/// Finds one kind of secret.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) pattern: Regex,
    /// With `[redacted]` or `***` in place of the secret.
    pub(crate) replacement: &'static str,
    guard: Guard,
    /// Whether what it finds is a secret even in a name. Names of users and threads may look like an account
    /// with its password: `oidc:bob@example.com`.
    pub(crate) holds_in_names: bool,
    /// Whether it finds nothing in a text that does not name a secret.
    needs_name: bool,
}

impl Rule {
    /// Replaces what the rule finds; `None` if it finds nothing.
    pub(crate) fn apply<'t>(
        &self,
        text: &'t str,
        mut replace: impl FnMut(&Captures<'t>, &mut String) -> bool,
    ) -> Option<String> {
        let (mut out, mut end, mut has_changed) = (String::new(), 0, false);
        for found in self.pattern.captures_iter(text) {
            let Some(whole) = found.get(0) else { continue };
            if !(self.guard)(text, &found) {
                continue;
            }
            out.push_str(&text[end..whole.start()]);
            has_changed |= replace(&found, &mut out);
            end = whole.end();
        }
        has_changed.then(|| out + &text[end..])
    }

    pub(crate) fn finds(&self, text: &str) -> bool {
        self.pattern.captures_iter(text).any(|found| (self.guard)(text, &found))
    }
}

pub(crate) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // The tests check that every pattern compiles.
    let compile = |(pattern, replacement, guard, holds_in_names): Source| {
        let needs_name = pattern.contains(NAME_END);
        Some(Rule { pattern: Regex::new(&pattern).ok()?, replacement, guard, holds_in_names, needs_name })
    };
    sources().into_iter().filter_map(compile).collect()
});

/// Pattern, replacement, guard, and whether it holds in names.
type Source = (String, &'static str, Guard, bool);

/// Returns all rules; that of private keys is the first.
pub(super) fn sources() -> Vec<Source> {
    let mut sources = vec![private_keys()];
    sources.extend(by_place());
    sources.extend(named_values());
    sources.extend(pairs());
    sources.extend(elements());
    sources.extend(arguments());
    sources.extend(named_lines());
    sources
}

/// PEM keys, including truncated ones.
fn private_keys() -> Source {
    let begin = "-----BEGIN ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----";
    let pattern = format!(
        r#"{begin}(?:[^"']*?-----END ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----|(?:\\+[nr]|[\sA-Za-z0-9+/=:,-])*)"#
    );
    (pattern.replace(r"\s", r" \t\r\n"), "[redacted]", guards::none, true)
}

/// Passwords in addresses, tokens behind a scheme of HTTP, and known shapes.
fn by_place() -> Vec<Source> {
    let shapes = SHAPES.map(|(_, shape)| shape).join("|");
    let url =
        r#"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^ \t\r\n/?#"'\\<>]*|[^ \t\r\n:/@"'\\<>]*:[^ \t\r\n"'\\<>,]*)@"#;
    let account = r#"(?-u:\b)[A-Za-z0-9_.~-]+:[^ \t\r\n:@/"'\\<>]+@([A-Za-z0-9\[])"#;
    vec![
        (url.to_owned(), "${1}***@", guards::none, true),
        (account.to_owned(), "***@${1}", guards::none, false),
        (
            r"(?i-u:(bearer(?:[ \t]|%20)+))[A-Za-z0-9._~+/=-]{8,}".to_owned(),
            "${1}[redacted]",
            guards::none,
            false,
        ),
        // Bearer tokens whose space was removed.
        (r"(?i-u:(bearer))[A-Za-z0-9._~+/=-]{16,}".to_owned(), "${1}[redacted]", guards::none, false),
        (r"(?i-u:(basic[ \t]+))[A-Za-z0-9+/]{8,}={1,2}".to_owned(), "${1}[redacted]", guards::none, true),
        // `find` is stricter about names.
        (format!("{BEFORE}(?:{shapes})"), "${1}[redacted]", guards::none, false),
    ]
}

/// Values of named secrets, with backslashes where JSON is quoted in JSON.
fn named_values() -> Vec<Source> {
    let (name, equals) = (name(), equals());
    let quoted = format!("{name}{CLOSED_NAME}{equals}{}", before_quote());
    let rule = |pattern: String| (pattern, "${1}[redacted]", guards::none as Guard, true);
    let guarded = |pattern: String, guard: Guard| (pattern, "${1}[redacted]", guard, true);
    vec![
        // Cookies are separated by spaces.
        rule(r#"((?i-u:cookie)\\*["']?[ \t]*[:=][ \t]*(?:\\*["'])?)[^"'\r\n\\]+"#.to_owned()),
        // In three quotes, …
        rule(format!(r#"({quoted}(?:\\*"){{3}}(?:[ \t]*{LINE_END})?)(?:[^"\\]|\\+[^"\\])+"#)),
        rule(format!(r#"({quoted}(?:\\*'){{3}}(?:[ \t]*{LINE_END})?)(?:[^'"\\]|\\+[^'"\\])+"#)),
        // … in quotes, …
        rule(format!(r#"({quoted}")(?:[^"\\]|\\.)+"#)),
        // … in quotes that are escaped once or twice (a quote with more backslashes than the first is part of
        // the value), …
        rule(format!(r#"({quoted}\\")(?:[^"\\]|\\[^"\\]|\\{{2,}}"?)+"#)),
        rule(format!(r#"({quoted}\\\\+")(?:[^"\\]|\\{{1,3}}[^"\\]|\\{{4,}}"?)+"#)),
        rule(format!(r#"({quoted}\\*')(?:[^'"\\]|\\+[^'"\\])+"#)),
        // … in a span of code, …
        guarded(format!(r#"({quoted}`+)(?:[^`\r\n"\\]|\\+[^\\nr])+"#), guards::is_value),
        // … as a JSON number, which is replaced with a string to keep the JSON valid, …
        (format!(r#"({name}"{equals})-?[0-9][0-9.eE+-]*"#), r#"${1}"[redacted]""#, guards::none, true),
        // … without quotes, …
        guarded(
            format!(
                r#"({name}[*_`]*(?:\\+["'])?{equals})(?:(?:(?i-u:bearer|basic|digest|token)|{TAG})[ \t]+)?(?:[^ \t\r\n\u{{a0}}\u{{3000}}"'`&\\*_]|\\+[^"'\\nrt \t])(?:[^ \t\r\n"'&\\]|\\+[^"'\\nrt \t])*"#
            ),
            guards::is_value,
        ),
        // … and in a row of a table.
        guarded(
            format!(
                r#"([|│][^|│\r\n]*{NAME_END}{CLOSED_NAME}[:：]?{MARKS}{BLANK}*[|│]{BLANK}*[*_`]*\\*["']?)(?:[^ \t\r\n"'`|│\\*_]|\\+[^"'\\nrt \t])(?:[^ \t\r\n"'`|│\\]|\\+[^"'\\nrt \t])*"#
            ),
            guards::is_value_of_a_cell,
        ),
    ]
}

/// Pairs of `name` and `value`, with backslashes where JSON is quoted in JSON.
fn pairs() -> Vec<Source> {
    let pair = pair();
    vec![
        (format!(r#"({pair}\\*")(?:[^"\\]|\\+[^"\\])+"#), "${1}[redacted]", guards::none, true),
        (format!(r#"({pair}\\*')(?:[^'"\\]|\\+[^'"\\])+"#), "${1}[redacted]", guards::none, true),
        (
            format!(r#"({pair})[^ \t\r\n"'\\,{{}}\[][^ \t\r\n"'\\,}}]*"#),
            "${1}[redacted]",
            guards::is_value,
            true,
        ),
    ]
}

/// Elements of XML, and their attributes: `<password>hunter2</password>`, `<password value="hunter2"/>`.
fn elements() -> Vec<Source> {
    let name = name();
    let content = format!(
        r#"(<(?:[A-Za-z0-9_.-]+:)?{name}(?:[ \t](?:[^<>]*[^<>/])?)?>)[ \t\r\n]*(?:[^<>"\r\n]+[ \t\r\n]*(?<after><\\?/)|[^<>" \t\r\n]+\z)"#
    );
    let attribute = format!(r#"<[^<>]*{name}(?:\\*["'])?[ \t][^<>]*(?-u:\b)(?i-u:value)[ \t]*=[ \t]*"#);
    vec![
        (content, "${1}[redacted]${after}", guards::none, true),
        (format!(r#"({attribute}\\*")[^"\\<>]+"#), "${1}[redacted]", guards::none, true),
        (format!(r#"({attribute}\\*')[^'"\\<>]+"#), "${1}[redacted]", guards::none, true),
    ]
}

/// Arguments of programs: `--password hunter2`, `curl -u bob:hunter2`.
fn arguments() -> Vec<Source> {
    let flag = format!("--{}", name());
    let account = r"(?:-u[ \t]*|-[A-Za-z]{1,4}u[ \t]+|--(?:proxy-)?user(?:[ \t]+|=))";
    let account = format!(r"curl(?:[^\r\n]|\\\r?\n)*?[ \t]{account}");
    let rule = |pattern: String, guard: Guard| (pattern, "${1}[redacted]", guard, true);
    vec![
        rule(format!(r#"({flag}[ \t]+\\*")[^"\\]+"#), guards::none),
        rule(format!(r#"({flag}[ \t]+\\*')[^'"\\]+"#), guards::none),
        // In a list of arguments, …
        rule(format!(r#"({flag}\\*["'],[ \t]*\\*["'])[^"'\\]+"#), guards::none),
        // … and without quotes.
        rule(format!(r#"({flag}[ \t]+)[^ \t\r\n"'\\<-][^ \t\r\n"'\\]*"#), guards::is_no_word_of_a_sentence),
        rule(format!(r#"({account}\\*"[^ \t\r\n":\\]+:)[^"\\]+"#), guards::none),
        rule(format!(r#"({account}\\*'[^ \t\r\n':\\]+:)[^'"\\]+"#), guards::none),
        rule(format!(r#"({account}[^ \t\r\n"':\\]+:)[^ \t\r\n"'\\]+"#), guards::none),
    ]
}

/// Values on the line after their name.
fn named_lines() -> Vec<Source> {
    // Perhaps in a block or a span of code.
    let fence = format!("(?:[ \\t]*```[A-Za-z]*{LINE_END})?");
    let value = r#"(?:[^ \t\r\n"'`\\]|\\+[^"'\\nrt \t])+"#;
    let equals = equals();
    let rule = |pattern: String, guard: Guard| (pattern, "${1}[redacted]", guard, true);
    vec![
        // Perhaps in a quotation of Markdown.
        rule(
            format!(
                r#"({NAME_END}[*_`]*{BLANK}*[:：][*_]*{BLANK}*(?:```[A-Za-z]*)?{LINE_END}{fence}(?:[ \t>]|\\+t)*[`"']?)({value})"#
            ),
            guards::is_value_of_a_line,
        ),
        // Where the name is all of its line.
        rule(
            format!(
                r#"((?:(?m-u:^)|\\n)[ \t#*]*(?i-u:passw(?:or)?d|passphrase)[ \t*]*{LINE_END}{fence}[ \t]*)({value})"#
            ),
            guards::is_password_of_a_line,
        ),
        // A block of YAML: the first line below `password: |`.
        rule(
            format!(
                r#"({NAME_END}{CLOSED_NAME}{equals}{BLOCK}[ \t]*{LINE_END}(?:[ \t]|\\+t)+)(?:[^ \t\r\n"\\]|\\+[^\\nr])(?:[^\r\n"\\]|\\+[^\\nr])*"#
            ),
            guards::is_no_punctuation,
        ),
        // `.netrc`.
        rule(
            format!(
                r#"((?i-u:machine)[ \t]+[^ \t\r\n]+(?:[ \t]|{LINE_END})+(?i-u:login)[ \t]+[^ \t\r\n]+(?:[ \t]|{LINE_END})+(?i-u:password)[ \t]+)({value})"#
            ),
            guards::is_mixed_value,
        ),
    ]
}

/// Replaces what rules find, with their own replacements.
pub(super) fn replace_all(text: &str) -> Cow<'_, str> {
    let has_name = has_name(text);
    let rules = RULES.iter().filter(|rule| has_name || !rule.needs_name);
    rules.fold(Cow::Borrowed(text), |text, rule| {
        let replaced = rule.apply(&text, |found, out| {
            found.expand(rule.replacement, out);
            true
        });
        replaced.map_or(text, Cow::Owned)
    })
}
