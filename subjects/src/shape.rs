//! One pass over a body before any type sees it: how deep, no key twice, nothing after the end, and a
//! glimpse of the few fields that are needed even when the rest is broken.

use std::{borrow::Cow, cell::RefCell, collections::HashSet, fmt};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{CodecError, Encoding, HandoffId, decode};

/// How deep a body may nest. Far more than the contract needs, far less than a stack.
pub const MAX_DEPTH: usize = 64;

/// What could be read of a handoff, even if it cannot be accepted. Whatever stood before the fault counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    pub handoff_id: Option<HandoffId>,
    pub schema_version: Option<u64>,
    /// As written, since a signature covers the text.
    pub issued_at: Option<String>,
    pub reply_to: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("the body is not well-formed {encoding}: {reason}")]
    Malformed { encoding: Encoding, reason: String },
    #[error("the body is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("duplicate key `{0}` in one object")]
    DuplicateKey(String),
}

/// A body that was inspected. Only such a one can be decoded as a handoff.
#[derive(Clone, Debug)]
pub struct Body<'b> {
    encoding: Encoding,
    bytes: &'b [u8],
    glimpse: Glimpse,
    shape: Result<(), ShapeError>,
}

impl<'b> Body<'b> {
    /// Walks the whole body once.
    pub fn inspect(encoding: Encoding, bytes: &'b [u8]) -> Self {
        let (glimpse, shape) = inspect(encoding, bytes);
        Self { encoding, bytes, glimpse, shape }
    }

    pub fn glimpse(&self) -> &Glimpse {
        &self.glimpse
    }

    pub fn shape(&self) -> Result<(), ShapeError> {
        self.shape.clone()
    }

    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        decode(self.encoding, self.bytes)
    }
}

fn inspect(encoding: Encoding, body: &[u8]) -> (Glimpse, Result<(), ShapeError>) {
    let walker = Walker::default();
    let walked = match encoding {
        Encoding::Json => {
            // Checked once as a whole, so that no string needs to be checked by itself.
            std::str::from_utf8(body).map_err(|error| error.to_string()).and_then(|text| {
                let mut json = serde_json::Deserializer::from_str(text);
                walker
                    .root()
                    .deserialize(&mut json)
                    .and_then(|()| json.end())
                    .map_err(|error| error.to_string())
            })
        }
        Encoding::MessagePack => {
            let mut rest = body;
            let mut pack = rmp_serde::Deserializer::new(&mut rest);
            pack.set_max_depth(MAX_DEPTH * 2);
            match walker.root().deserialize(&mut pack) {
                Err(error) => Err(error.to_string()),
                Ok(()) if rest.is_empty() => Ok(()),
                Ok(()) => Err("bytes after the end".to_owned()),
            }
        }
    };
    let fault = walker.fault.take();
    let result = walked.map_err(|reason| fault.unwrap_or(ShapeError::Malformed { encoding, reason }));
    (walker.glimpse.take(), result)
}

/// What a walk gathers. The fault is kept here because a serde error can carry only text.
#[derive(Default)]
struct Walker {
    glimpse: RefCell<Glimpse>,
    fault: RefCell<Option<ShapeError>>,
}

impl Walker {
    fn root(&self) -> Value<'_> {
        Value { walker: self, depth: 0, field: Field::Other }
    }

    fn fail<E: de::Error>(&self, fault: ShapeError) -> E {
        let error = E::custom(&fault);
        self.fault.replace(Some(fault));
        error
    }
}

/// The top-level fields worth remembering.
#[derive(Clone, Copy)]
enum Field {
    HandoffId,
    SchemaVersion,
    IssuedAt,
    ReplyTo,
    Other,
}

#[derive(Clone, Copy)]
struct Value<'w> {
    walker: &'w Walker,
    depth: usize,
    field: Field,
}

impl<'w> Value<'w> {
    fn deeper<E: de::Error>(self) -> Result<Value<'w>, E> {
        if self.depth >= MAX_DEPTH {
            return Err(self.walker.fail(ShapeError::TooDeep));
        }
        Ok(Value { walker: self.walker, depth: self.depth + 1, field: Field::Other })
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a boolean, a number, a string, an array or an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        if let Field::SchemaVersion = self.field {
            self.walker.glimpse.borrow_mut().schema_version = Some(number);
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let mut glimpse = self.walker.glimpse.borrow_mut();
        match self.field {
            Field::HandoffId => glimpse.handoff_id = text.parse().ok(),
            Field::IssuedAt => glimpse.issued_at = Some(text.to_owned()),
            Field::ReplyTo => glimpse.reply_to = Some(text.to_owned()),
            Field::SchemaVersion | Field::Other => {}
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let item = self.deeper()?;
        while items.next_element_seed(item)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let entry = self.deeper()?;
        let mut seen = Seen::default();
        while let Some(key) = entries.next_key_seed(Key)? {
            let field = match &*key {
                "handoff_id" if self.depth == 0 => Field::HandoffId,
                "schema_version" if self.depth == 0 => Field::SchemaVersion,
                "issued_at" if self.depth == 0 => Field::IssuedAt,
                "reply_to" if self.depth == 0 => Field::ReplyTo,
                _ => Field::Other,
            };
            if let Err(key) = seen.insert(key) {
                return Err(self.walker.fail(ShapeError::DuplicateKey(key.chars().take(64).collect())));
            }
            entries.next_value_seed(Value { field, ..entry })?;
        }
        Ok(())
    }
}

/// The keys of one object. Few are compared one by one, which is faster than hashing; many are hashed, since comparing
/// them would let a body of a megabyte keep us busy for minutes.
#[derive(Default)]
struct Seen<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Seen<'de> {
    const FEW: usize = 16;

    /// Gives the key back if it was there already.
    fn insert(&mut self, key: Cow<'de, str>) -> Result<(), Cow<'de, str>> {
        if self.few.contains(&key) || (!self.many.is_empty() && self.many.contains(&key)) {
            return Err(key);
        }
        if self.few.len() < Self::FEW {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
        Ok(())
    }
}

/// A key is a string, also in MessagePack, which would allow anything.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string as key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0193f2c0-0000-7000-8000-0000000000aa";

    fn json(text: &str) -> (Glimpse, Result<(), ShapeError>) {
        inspect(Encoding::Json, text.as_bytes())
    }

    #[test]
    fn the_id_is_read_from_what_stands_before_a_fault() {
        let (glimpse, result) = json(&format!(r#"{{"schema_version":1,"handoff_id":"{ID}","kind":"ch"#));
        assert!(matches!(result, Err(ShapeError::Malformed { .. })));
        assert_eq!(glimpse.handoff_id.map(|id| id.to_string()).as_deref(), Some(ID));
        assert_eq!(glimpse.schema_version, Some(1));
    }

    #[test]
    fn a_nested_id_is_not_the_handoffs_id() {
        let (glimpse, result) = json(&format!(r#"{{"payload":{{"handoff_id":"{ID}"}}}}"#));
        assert_eq!((glimpse, result), (Glimpse::default(), Ok(())));
    }

    #[test]
    fn depth_is_bounded_in_both_encodings_also_under_unknown_fields() {
        let deep = format!(r#"{{"unknown":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(json(&deep).1, Err(ShapeError::TooDeep));
        let mut pack = vec![0x81, 0xa1, b'x'];
        pack.extend(std::iter::repeat_n(0x91, 10_000));
        pack.push(0xc0);
        assert_eq!(inspect(Encoding::MessagePack, &pack).1, Err(ShapeError::TooDeep));
    }

    #[test]
    fn a_key_may_stand_once_at_any_depth() {
        assert_eq!(json(r#"{"a":{"b":1,"b":2}}"#).1, Err(ShapeError::DuplicateKey("b".into())));
        let pack = [0x82, 0xa1, b'b', 0x01, 0xa1, b'b', 0x02];
        assert_eq!(inspect(Encoding::MessagePack, &pack).1, Err(ShapeError::DuplicateKey("b".into())));
    }

    #[test]
    fn a_key_is_found_again_among_many() {
        let keys: Vec<String> = (0..1_000).map(|n| format!("\"k{n}\":0")).collect();
        assert_eq!(json(&format!("{{{}}}", keys.join(","))).1, Ok(()));
        for again in [0, 15, 16, 999] {
            let found = json(&format!("{{{},\"k{again}\":0}}", keys.join(","))).1;
            assert_eq!(found, Err(ShapeError::DuplicateKey(format!("k{again}"))));
        }
    }

    #[test]
    fn nothing_may_follow_the_end() {
        assert!(json("{} {}").1.is_err());
        assert!(inspect(Encoding::MessagePack, &[0x80, 0x80]).1.is_err());
    }

    #[test]
    fn message_pack_may_say_no_more_than_json_could() {
        for (what, body) in [
            ("a number as key", &[0x81, 0x01, 0x01][..]),
            ("binary", &[0xc4, 0x01, 0x00]),
            ("an extension", &[0xd4, 0x01, 0x00]),
            ("a string that is not UTF-8", &[0xa1, 0xff]),
            ("a length that is not there", &[0xdd, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert!(inspect(Encoding::MessagePack, body).1.is_err(), "{what} was accepted");
        }
    }
}
