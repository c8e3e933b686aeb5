//! Pictures, sound and files, which requests and answers carry as base64.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD};
use secrets::redact_by_kind;

/// Shorter base64 is looked at as it stands, too: its letters may be those of a secret. A picture has more of
/// them than any secret.
const MIN_BINARY_BYTES: usize = 1024;
/// The same after `data:…;base64,`, where a picture may be small.
const MIN_BINARY_ADDRESS_BYTES: usize = 64;
/// What nothing says is base64 and has fewer letters is taken for a word.
const MIN_BARE_BYTES: usize = 64;

/// Replaces secrets in a string. A text in base64 is redacted as a text. A picture is not looked at: any few
/// letters of its base64 may look like a secret, and a changed picture is none.
pub(super) fn redact_string(text: &str) -> Cow<'_, str> {
    let Some(content) = Content::of(text) else { return redact_by_kind(text) };
    if let Ok(decoded) = std::str::from_utf8(&content.decoded)
        && let Cow::Owned(redacted) = redact_by_kind(decoded)
    {
        return Cow::Owned(format!("{}{}", content.before, BASE64.encode(redacted.as_bytes())));
    }
    if content.is_large { Cow::Borrowed(text) } else { redact_by_kind(text) }
}

/// Returns whether a string is base64 that is passed on as a whole, such as a picture or a piece of sound.
pub(super) fn is_base64(text: &str) -> bool {
    Content::of(text).is_some_and(|content| content.is_large)
}

/// What a string has in base64.
struct Content<'t> {
    /// The address up to its base64, if it is one.
    before: &'t str,
    decoded: Vec<u8>,
    is_large: bool,
}

impl<'t> Content<'t> {
    fn of(text: &'t str) -> Option<Self> {
        const MARK: &str = ";base64,";
        let address = text.strip_prefix("data:").and_then(|_| text.find(MARK));
        let (before, encoded) = text.split_at(address.map_or(0, |at| at + MARK.len()));
        if matches!(redact_by_kind(before), Cow::Owned(_))
            || (before.is_empty() && text.len() < MIN_BARE_BYTES)
        {
            return None;
        }
        let min = if before.is_empty() { MIN_BINARY_BYTES } else { MIN_BINARY_ADDRESS_BYTES };
        let decoded = decode(encoded)?;
        Some(Self { before, decoded, is_large: encoded.len() >= min })
    }
}

/// Decodes base64, which may have line ends and lack its padding.
fn decode(encoded: &str) -> Option<Vec<u8>> {
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\r' | b'\n');
    if !encoded.bytes().all(is_letter) {
        return None;
    }
    let letters: Vec<u8> = encoded.bytes().filter(|byte| !matches!(byte, b'=' | b'\r' | b'\n')).collect();
    BASE64_NOPAD.decode(&letters).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

    /// Returns bytes whose base64 has letters that look like a token.
    fn picture(bytes: usize) -> String {
        let mut picture = BASE64.encode(&[0xff; 30]) + "/eyJabcdefghijklmnop";
        picture.push_str(&BASE64.encode(&vec![0x91; bytes]));
        assert!(matches!(redact_by_kind(&picture), Cow::Owned(_)), "the example is none");
        picture
    }

    #[test]
    fn pictures_are_not_changed() {
        let wrapped =
            picture(6000).as_bytes().chunks(76).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\r\n");
        let unpadded = picture(91).trim_end_matches('=').to_owned();
        for text in [
            format!("data:image/png;base64,{}", picture(90)),
            format!("data:image/png;base64,{unpadded}"),
            picture(1500),
            wrapped,
        ] {
            assert_eq!(redact_string(&text), text);
            assert!(is_base64(&text));
        }
    }

    #[test]
    fn text_in_base64_is_redacted() {
        let long = format!("{SECRET} {}", "word ".repeat(1000));
        let short = format!("the key is {SECRET}");
        for (before, text) in [
            ("data:text/plain;base64,", &short),
            ("data:text/plain;base64,", &long),
            ("", &short),
            ("", &long),
        ] {
            let redacted = redact_string(&format!("{before}{}", BASE64.encode(text.as_bytes()))).into_owned();
            let encoded = redacted.strip_prefix(before).expect("what is before it stays");
            let decoded = BASE64.decode(encoded.as_bytes()).expect("base64");
            assert_eq!(String::from_utf8(decoded).expect("a text"), redact_by_kind(text));
        }
    }

    #[test]
    fn what_only_looks_like_base64_is_redacted_as_it_stands() {
        let token = "eyJhbGciOiJIUzI1NiJ9eyJzdWIiOiIxMjM0NTY3ODkwIn0";
        let before = format!("data:{SECRET};base64,{}", "QUJD".repeat(40));
        for text in
            [token.to_owned(), format!("data:text/plain;base64,{token}"), format!("data:,{SECRET}"), before]
        {
            assert!(matches!(redact_string(&text), Cow::Owned(_)), "{text}");
        }
    }
}
