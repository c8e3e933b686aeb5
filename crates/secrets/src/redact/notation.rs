//! How names of secrets are written, and what separates them from their values.

use std::sync::LazyLock;

use regex::Regex;

pub(crate) const COLOURS: &str = r"(?:\x1b\[[0-9;]*m)*";
/// What names of secrets end with: `token`, `gateway.token`, `X-Api-Key`, but not `tokens` or `token_file`.
pub(crate) const NAME_END: &str = r"(?:(?i-u:passw(?:or)?d|passphrase|pwd|secret|token|jwt|(?:api|access|secret|private|client)[ _-]?key|credential|authorization)|密码|密碼|パスワード|(?-u:\b)pass)";
/// The end of a line, also as an escape sequence of JSON.
pub(crate) const LINE_END: &str = r"(?:\r?\n|(?:\\+r)?\\+n)";
/// Spaces that do not end a line, such as U+00A0.
pub(crate) const BLANK: &str = r"[ \t\u{a0}\u{2000}-\u{200b}\u{202f}\u{3000}\u{feff}]";
/// Bold and italic text of Markdown.
pub(crate) const MARKS: &str = "[*_]*";
/// What closes a name: quotes, and signs of Markdown.
pub(crate) const CLOSED_NAME: &str = r#"[*_`]*(?:\\*["'])?[*_`]*"#;
/// A tag of YAML: `!vault`.
pub(crate) const TAG: &str = r#"!{1,2}[A-Za-z][^ \t\r\n"'\\]*"#;
/// What begins a block of YAML: `|`, `>-`, `!vault |`.
pub(crate) const BLOCK: &str = r#"(?:!{1,2}[A-Za-z][^ \t\r\n"'\\]*[ \t]+)?[|>][0-9+-]{0,2}"#;
/// A type between a name and its value: `password: &str = `.
const TYPE: &str = r"(?::[ \t]*&?(?:'static[ \t]+)?(?i-u:str|string|bytes|text|any)[ \t]*=)";

/// Returns whether the text names a secret. Most texts do not, and this is the cheaper look.
pub(crate) fn has_name(text: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NAME_END).ok());
    NAME.as_ref().is_none_or(|name| name.is_match(text))
}

/// Returns the pattern of names of secrets.
pub(crate) fn name() -> String {
    format!(r"(?:[A-Za-z0-9_.-]*{NAME_END})")
}

/// Returns the pattern of what separates a name from its value: `name=`, `name: `, `"name":"`, `name :=`,
/// `**name:** `.
pub(crate) fn equals() -> String {
    let operator = format!("(?:{TYPE}|[?!+:]{{0,2}}[:=：＝][=>]{{0,2}})");
    format!(r"{COLOURS}{BLANK}*{operator}{MARKS}{BLANK}*{COLOURS}(?:Some\()?{MARKS}")
}

/// Returns the pattern of what may stand between that and a quote: `!vault "`, `b"`, `String::from("`.
pub(crate) fn before_quote() -> String {
    format!(r"(?:{TAG}[ \t]+)?(?:[bBrRfFuUL@$]{{1,2}}|[A-Za-z_][A-Za-z0-9_.:]{{0,40}}\()?")
}

/// Returns the pattern of what stands before the value of a pair: `name: DB_PASSWORD`, and on the next line
/// `value: `, as Kubernetes writes variables, or `{"name":"X-Api-Key","value":`.
pub(crate) fn pair() -> String {
    let quote = r#"(?:\\*["'])?"#;
    let (name, is) = (name(), r"[ \t]*[:=][ \t]*");
    let between = format!(r"(?:[ \t]*,)?(?:[ \t]|{LINE_END}|\\+t)*");
    format!("(?-u:\\b)(?i-u:name|key){quote}{is}{quote}{name}{quote}{between}{quote}(?i-u:value){quote}{is}")
}
