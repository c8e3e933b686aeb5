//! The bytes between brackets of a pattern, such as `[a-z]`.

/// Bytes of which one matches. A slash is never one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Class([u128; 2]);

impl Class {
    /// Reads what follows the opening bracket. Returns also how many bytes it takes, with the closing one;
    /// `None` if it is malformed.
    pub(super) fn parse(pattern: &[u8]) -> Option<(Self, usize)> {
        let byte = |at: usize| pattern.get(at).copied();
        let is_negated = matches!(byte(0)?, b'!' | b'^');
        let (mut class, mut at, mut before) = (Self([0; 2]), usize::from(is_negated), None);
        loop {
            let mut last = Some(byte(at)?);
            match (byte(at)?, before) {
                (b'\\', _) => {
                    at += 1;
                    last = Some(byte(at)?);
                    class.add(byte(at)?);
                }
                (b'-', Some(first)) if byte(at + 1).is_some_and(|next| next != b']') => {
                    at += 1;
                    at += usize::from(byte(at) == Some(b'\\'));
                    (first..=byte(at)?).for_each(|byte| class.add(byte));
                    last = None;
                }
                (b'[', _) if byte(at + 1) == Some(b':') => {
                    let name = pattern.get(at + 2..)?;
                    let name = name.get(..name.iter().position(|byte| *byte == b']')?)?;
                    match name.strip_suffix(b":") {
                        Some(named) => {
                            let is_of = named_class(named)?;
                            (0..=u8::MAX).filter(is_of).for_each(|byte| class.add(byte));
                            at += 2 + name.len();
                            last = None;
                        }
                        None => class.add(b'['),
                    }
                }
                (other, _) => class.add(other),
            }
            (at, before) = (at + 1, last);
            if byte(at)? == b']' {
                break;
            }
        }
        if is_negated {
            class.0.iter_mut().for_each(|bits| *bits = !*bits);
        }
        Some((class, at + 1))
    }

    fn add(&mut self, byte: u8) {
        if let Some(bits) = self.0.get_mut(usize::from(byte / 128)) {
            *bits |= 1 << (byte % 128);
        }
    }

    pub(super) fn has(self, byte: u8) -> bool {
        let bits = self.0.get(usize::from(byte / 128));
        byte != b'/' && bits.is_some_and(|bits| bits & (1 << (byte % 128)) != 0)
    }
}

/// Returns which bytes are of a class with a name. To Git, only ASCII is.
fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    let is_of: fn(&u8) -> bool = match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    Some(is_of)
}
