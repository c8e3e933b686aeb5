//! Patterns of rules, read and matched as Git does: as bytes, whatever their encoding.

use super::class::Class;

/// A line of a file of rules.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Whether it includes again what an earlier line excludes.
    pub(super) is_negated: bool,
    is_of_folders: bool,
    /// Whether it is about names, wherever they are, and not about paths.
    is_of_names: bool,
    tokens: Vec<Token>,
}

#[derive(Debug, PartialEq)]
enum Token {
    Byte(u8),
    /// One byte, no slash.
    Any,
    OneOf(Class),
    /// Any bytes without a slash.
    Star,
    /// Any bytes.
    Stars,
    /// Nothing, or any bytes that end with a slash.
    Folders,
}

/// Reads a file of rules. A line that cannot match anything is left out.
pub(super) fn parse(rules: &[u8]) -> Vec<Pattern> {
    let rules = rules.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rules);
    rules.split(|byte| *byte == b'\n').filter_map(Pattern::of_line).collect()
}

impl Pattern {
    fn of_line(line: &[u8]) -> Option<Self> {
        if line.starts_with(b"#") {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // To Git, a line ends at a NUL.
        let line = trim_spaces(line.split(|byte| *byte == 0).next()?);
        let (is_negated, line) = strip(line.strip_prefix(b"!"), line);
        let (is_of_folders, line) = strip(line.strip_suffix(b"/"), line);
        let is_of_names = !line.contains(&b'/');
        let line = line.strip_prefix(b"/").unwrap_or(line);
        let tokens = tokens(line, is_of_names).filter(|tokens| !tokens.is_empty())?;
        Some(Self { is_negated, is_of_folders, is_of_names, tokens })
    }

    /// Returns whether the pattern matches a path that is relative to the folder of the rules.
    pub(super) fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        if self.is_of_folders && !is_folder {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        matches(&self.tokens, if self.is_of_names { name } else { path })
    }
}

fn strip<'l>(stripped: Option<&'l [u8]>, line: &'l [u8]) -> (bool, &'l [u8]) {
    (stripped.is_some(), stripped.unwrap_or(line))
}

/// Takes spaces off the end of a line, but not one after a backslash.
fn trim_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut is_escaped) = (0, false);
    for (at, byte) in line.iter().enumerate() {
        if is_escaped || *byte != b' ' {
            end = at + 1;
        }
        is_escaped = !is_escaped && *byte == b'\\';
    }
    line.get(..end).unwrap_or(line)
}

/// Returns the tokens of a pattern; `None` if it is malformed, and so matches nothing.
fn tokens(pattern: &[u8], is_of_names: bool) -> Option<Vec<Token>> {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    // Git compares what is before apart, so that two stars there begin the rest.
    let plain = pattern.iter().position(is_special).unwrap_or(pattern.len());
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(byte) = pattern.get(at) {
        let rest = pattern.get(at + 1..)?;
        at += 1;
        tokens.push(match byte {
            b'*' => {
                let is_first = at == plain + 1 || pattern.get(..at - 1)?.ends_with(b"/");
                let more = rest.iter().take_while(|byte| **byte == b'*').count();
                let rest = rest.get(more..)?;
                let is_last = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
                at += more;
                if more == 0 || is_of_names || !is_first || !is_last {
                    Token::Star
                } else if rest.starts_with(b"/") {
                    at += 1;
                    if tokens.last() == Some(&Token::Folders) {
                        continue;
                    }
                    Token::Folders
                } else {
                    Token::Stars
                }
            }
            b'?' => Token::Any,
            b'[' => {
                let (class, length) = Class::parse(rest)?;
                at += length;
                Token::OneOf(class)
            }
            b'\\' => {
                at += 1;
                Token::Byte(*rest.first()?)
            }
            byte => Token::Byte(*byte),
        });
    }
    Some(tokens)
}

/// Follows all ways to match at once, so that no pattern takes long.
fn matches(tokens: &[Token], text: &[u8]) -> bool {
    let (mut tokens, mut text) = (tokens, text);
    while let [Token::Byte(byte), more @ ..] = tokens {
        let Some(rest) = text.strip_prefix(&[*byte]) else { return false };
        (tokens, text) = (more, rest);
    }
    while let [more @ .., Token::Byte(byte)] = tokens {
        let Some(rest) = text.strip_suffix(&[*byte]) else { return false };
        (tokens, text) = (more, rest);
    }
    let is_one = |token: &&Token| matches!(token, Token::Byte(_) | Token::Any | Token::OneOf(_));
    if tokens.iter().filter(is_one).count() > text.len() {
        return false;
    }
    let mut places = Places::new(tokens);
    places.enter(tokens, 0);
    for byte in text {
        let mut next = Places::new(tokens);
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| places.has(*at)) {
            match token {
                Token::Byte(wanted) if wanted == byte => next.enter(tokens, at + 1),
                Token::Any if *byte != b'/' => next.enter(tokens, at + 1),
                Token::OneOf(class) if class.has(*byte) => next.enter(tokens, at + 1),
                Token::Star if *byte != b'/' => next.enter(tokens, at),
                Token::Stars => next.enter(tokens, at),
                Token::Folders => {
                    next.stay(at);
                    if *byte == b'/' {
                        next.enter(tokens, at + 1);
                    }
                }
                Token::Byte(_) | Token::Any | Token::OneOf(_) | Token::Star => {}
            }
        }
        places = next;
    }
    places.has(tokens.len())
}

/// The tokens that a match may have come to.
struct Places(Vec<bool>);

impl Places {
    fn new(tokens: &[Token]) -> Self {
        Self(vec![false; tokens.len() + 1])
    }

    fn has(&self, at: usize) -> bool {
        self.0.get(at) == Some(&true)
    }

    fn stay(&mut self, at: usize) {
        if let Some(place) = self.0.get_mut(at) {
            *place = true;
        }
    }

    /// Comes to a token, and to what follows it if it may match nothing.
    fn enter(&mut self, tokens: &[Token], mut at: usize) {
        self.stay(at);
        while matches!(tokens.get(at), Some(Token::Star | Token::Stars | Token::Folders)) {
            at += 1;
            self.stay(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `git check-ignore` of Git 2.47 says of each path under each rule alone.
    #[test]
    fn patterns_match_what_git_matches() {
        let matching: &[(&[u8], &[u8])] = &[
            (b"a.txt", b"x/a.txt"),
            (b"*.txt", b"x/.txt"),
            (b"caf\xe9.txt", b"caf\xe9.txt"),
            (b"caf?.txt", b"caf\xe9.txt"),
            (b"[\xe0-\xef]*", b"\xe9"),
            (b"caf??", "caf\u{e9}".as_bytes()),
            (b"/x/*", b"x/a"),
            (b"x/**", b"x/a/b"),
            (b"x/**/b", b"x/b"),
            (b"x/**/b", b"x/a/a/b"),
            (b"**/a/b", b"a/b"),
            (b"**/**/**/b/c", b"x/y/b/c"),
            (b"x**/b", b"xa/a/b"),
            (b"{a,b}.txt", b"{a,b}.txt"),
            (b"a   ", b"a"),
            (b"a\\ ", b"a "),
            (b"a\\   ", b"a "),
            (b"a\t", b"a\t"),
            (b"a\r", b"a"),
            (b"a\0b", b"a"),
            (b"\\#a", b"#a"),
            (b"\\!a", b"!a"),
            (b"[[:digit:]]", b"7"),
            (b"[]a]", b"]"),
            (b"[!]a]", b"b"),
            (b"[^a-c]", b"d"),
            (b"[a\\]b]", b"]"),
            (b"[--0]", b"."),
            (b"[[:a]", b":"),
        ];
        let other: &[(&[u8], &[u8])] = &[
            (b"a.txt", b"b.txt"),
            (b"caf?", "caf\u{e9}".as_bytes()),
            (b"/a", b"x/a"),
            (b"x/*", b"x/a/b"),
            (b"x/**", b"x"),
            (b"x/y**/b", b"x/b"),
            (b"a/**b", b"a/x/b"),
            (b"{a,b}.txt", b"a.txt"),
            (b"#a", b"#a"),
            (b"[a", b"[a"),
            (b"[[:nothing:]]", b"n"),
            (b"a\\", b"a"),
            (b"a\\/", b"a"),
            (b"a/", b"a"),
            (b"x[^a]y/*", b"x/y/z"),
            (b"[^a]", b"a"),
            (b"/", b"a"),
            (b"", b"a"),
            (b"\r", b"a"),
        ];
        let of = |rule: &[u8], path: &[u8]| parse(rule).iter().any(|it| it.matches(path, false));
        for (expected, cases) in [(true, matching), (false, other)] {
            for (rule, path) in cases {
                let shown = (String::from_utf8_lossy(rule), String::from_utf8_lossy(path));
                assert_eq!(of(rule, path), expected, "{shown:?}");
            }
        }
        assert!(parse(b"a/").iter().all(|it| it.matches(b"x/a", true)));
    }

    /// A folder may be another's: no rule in it makes an ingest hang, or overflows its stack.
    #[test]
    fn hostile_patterns_end() {
        let text = [b"a/".repeat(1_000), b"b".to_vec()].concat();
        for part in ["**/a", "*a", "**/*/", "a/**/", "[a]*", "**/\\/"] {
            let rule = part.repeat(100_000);
            assert!(!parse(rule.as_bytes()).iter().any(|it| it.matches(&text, false)), "{part}");
        }
        let rule = format!("{}[c]", "**/a/".repeat(500));
        assert!(!parse(rule.as_bytes()).iter().any(|it| it.matches(&text, false)));
    }
}
