//! Checks the structure of a handoff body in one pass before it is deserialized: nesting depth, duplicate
//! keys, trailing bytes. The same pass extracts the few envelope fields that are needed even if the rest of
//! the body is invalid.

use std::{borrow::Cow, cell::RefCell, collections::HashSet, fmt};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{CodecError, Encoding, HandoffId, decode};

/// The maximum nesting depth of a body: far more than the contract needs, far less than would overflow the
/// stack.
pub const MAX_DEPTH: usize = 64;

/// The envelope fields of a handoff that could be read, even if the handoff cannot be accepted. Includes
/// every field that precedes the first error in the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvelopeFields {
    pub handoff_id: Option<HandoffId>,
    pub schema_version: Option<u64>,
    /// The original text, since the signature covers it.
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

/// An inspected body. [`crate::Handoff::decode`] accepts nothing else.
#[derive(Clone, Debug)]
pub struct Body<'b> {
    encoding: Encoding,
    bytes: &'b [u8],
    fields: EnvelopeFields,
    shape: Result<(), ShapeError>,
}

impl<'b> Body<'b> {
    /// Walks the whole body once. Does not fail; [`Self::shape`] returns the result of the check.
    pub fn inspect(encoding: Encoding, bytes: &'b [u8]) -> Self {
        let (fields, shape) = inspect(encoding, bytes);
        Self { encoding, bytes, fields, shape }
    }

    pub fn envelope_fields(&self) -> &EnvelopeFields {
        &self.fields
    }

    /// Returns the first structural error, if there is one.
    pub fn shape(&self) -> Result<(), ShapeError> {
        self.shape.clone()
    }

    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        decode(self.encoding, self.bytes)
    }
}

fn inspect(encoding: Encoding, body: &[u8]) -> (EnvelopeFields, Result<(), ShapeError>) {
    let walker = Walker::default();
    let walked = match encoding {
        Encoding::Json => {
            // Validating UTF-8 once for the whole body is faster than once for each string.
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
    (walker.fields.take(), result)
}

/// The results of a walk. The fault is kept here because a serde error can carry only text.
#[derive(Default)]
struct Walker {
    fields: RefCell<EnvelopeFields>,
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

/// The top-level fields that the walk extracts.
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
    fn child<E: de::Error>(self) -> Result<Value<'w>, E> {
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
            self.walker.fields.borrow_mut().schema_version = Some(number);
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let mut fields = self.walker.fields.borrow_mut();
        match self.field {
            Field::HandoffId => fields.handoff_id = text.parse().ok(),
            Field::IssuedAt => fields.issued_at = Some(text.to_owned()),
            Field::ReplyTo => fields.reply_to = Some(text.to_owned()),
            Field::SchemaVersion | Field::Other => {}
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let item = self.child()?;
        while items.next_element_seed(item)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let entry = self.child()?;
        let mut seen = KeySet::default();
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

/// The keys of one object. The first few are searched linearly, which is faster than hashing; the rest is
/// hashed, since with a linear search a body of one megabyte could take minutes.
#[derive(Default)]
struct KeySet<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> KeySet<'de> {
    const MAX_FEW: usize = 16;

    /// Adds a key. Returns the key as an error if it is a duplicate.
    fn insert(&mut self, key: Cow<'de, str>) -> Result<(), Cow<'de, str>> {
        if self.few.contains(&key) || (!self.many.is_empty() && self.many.contains(&key)) {
            return Err(key);
        }
        if self.few.len() < Self::MAX_FEW {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
        Ok(())
    }
}

/// Deserializes an object key. Accepts strings only, although MessagePack allows keys of any type.
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

    fn json(text: &str) -> (EnvelopeFields, Result<(), ShapeError>) {
        inspect(Encoding::Json, text.as_bytes())
    }

    #[test]
    fn the_id_is_read_if_it_precedes_the_error() {
        let (fields, result) = json(&format!(r#"{{"schema_version":1,"handoff_id":"{ID}","kind":"ch"#));
        assert!(matches!(result, Err(ShapeError::Malformed { .. })));
        assert_eq!(fields.handoff_id.map(|id| id.to_string()).as_deref(), Some(ID));
        assert_eq!(fields.schema_version, Some(1));
    }

    #[test]
    fn a_nested_id_is_not_the_handoffs_id() {
        let (fields, result) = json(&format!(r#"{{"payload":{{"handoff_id":"{ID}"}}}}"#));
        assert_eq!((fields, result), (EnvelopeFields::default(), Ok(())));
    }

    #[test]
    fn depth_is_limited_in_both_encodings_even_inside_unknown_fields() {
        let deep = format!(r#"{{"unknown":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(json(&deep).1, Err(ShapeError::TooDeep));
        let mut pack = vec![0x81, 0xa1, b'x'];
        pack.extend(std::iter::repeat_n(0x91, 10_000));
        pack.push(0xc0);
        assert_eq!(inspect(Encoding::MessagePack, &pack).1, Err(ShapeError::TooDeep));
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        assert_eq!(json(r#"{"a":{"b":1,"b":2}}"#).1, Err(ShapeError::DuplicateKey("b".into())));
        let pack = [0x82, 0xa1, b'b', 0x01, 0xa1, b'b', 0x02];
        assert_eq!(inspect(Encoding::MessagePack, &pack).1, Err(ShapeError::DuplicateKey("b".into())));
    }

    #[test]
    fn a_duplicate_is_found_among_many_keys() {
        let keys: Vec<String> = (0..1_000).map(|n| format!("\"k{n}\":0")).collect();
        assert_eq!(json(&format!("{{{}}}", keys.join(","))).1, Ok(()));
        for again in [0, 15, 16, 999] {
            let found = json(&format!("{{{},\"k{again}\":0}}", keys.join(","))).1;
            assert_eq!(found, Err(ShapeError::DuplicateKey(format!("k{again}"))));
        }
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert!(json("{} {}").1.is_err());
        assert!(inspect(Encoding::MessagePack, &[0x80, 0x80]).1.is_err());
    }

    #[test]
    fn message_pack_is_limited_to_what_json_can_express() {
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
