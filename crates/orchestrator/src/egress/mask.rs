//! Masks a secret in a stream of bytes, even if it is split over several chunks.

use bytes::Bytes;

const REPLACEMENT: &[u8] = b"[key]";

/// Replaces a secret in the bytes that pass.
#[derive(Clone)]
pub(super) struct Mask {
    secret: Vec<u8>,
    /// The end of what has passed, held back because it may be the beginning of the secret.
    held: Vec<u8>,
}

impl Mask {
    /// Without a secret everything passes.
    pub(super) fn new(secret: Option<&str>) -> Self {
        Self { secret: secret.unwrap_or_default().as_bytes().to_vec(), held: Vec::new() }
    }

    /// Returns the bytes that may be passed on. Holds back an end that may be the beginning of the secret.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        if self.secret.is_empty() {
            return piece;
        }
        if self.held.is_empty() && find(&piece, &self.secret).is_none() && self.open_end(&piece) == 0 {
            return piece;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&piece);
        let mut text = replace(&text, &self.secret);
        let open = self.open_end(&text);
        self.held = text.split_off(text.len() - open);
        text.into()
    }

    /// Returns what was held back, at the end of the stream.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }

    /// Returns a text without the secret.
    pub(super) fn text(&self, text: &[u8]) -> Vec<u8> {
        if self.secret.is_empty() { text.to_vec() } else { replace(text, &self.secret) }
    }

    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        !self.secret.is_empty() && find(text, &self.secret).is_some()
    }

    /// Returns how many bytes at the end of a text are a beginning of the secret.
    fn open_end(&self, text: &[u8]) -> usize {
        let longest = text.len().min(self.secret.len() - 1);
        (1..=longest).rev().find(|length| text.ends_with(&self.secret[..*length])).unwrap_or_default()
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

fn replace(text: &[u8], secret: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = find(rest, secret) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(REPLACEMENT);
        rest = &rest[at + secret.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns where a text contains the secret, which is not empty.
fn find(text: &[u8], secret: &[u8]) -> Option<usize> {
    let first = secret[0];
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if text[at..].starts_with(secret) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_taken_out_wherever_the_stream_is_split() {
        let secret = "sk-abcabd";
        let text = format!("{secret} x sk-abcab sk-sk-abcabd{secret}y sk-abca");
        let expected = "[key] x sk-abcab sk-[key][key]y sk-abca";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut mask = Mask::new(Some(secret));
                let mut out = Vec::new();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    out.extend_from_slice(&mask.push(Bytes::copy_from_slice(piece.as_bytes())));
                }
                out.extend_from_slice(&mask.finish());
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn what_cannot_be_the_secret_is_not_held_back() {
        let mut mask = Mask::new(Some("sk-abc"));
        assert_eq!(mask.push(Bytes::from_static(b"data: hello\n\n")), "data: hello\n\n");
        assert_eq!(mask.push(Bytes::from_static(b"ends with sk-")), "ends with ");
        assert_eq!(mask.push(Bytes::from_static(b"other")), "sk-other");
        assert_eq!(Mask::new(None).push(Bytes::from_static(b"x")), "x");
    }
}
