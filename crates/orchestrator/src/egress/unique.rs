//! JSON without duplicate keys. Parsers differ in which of the duplicates they use, so the value that was
//! checked could differ from the one that a provider reads.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// A value without duplicate keys, at any depth.
pub(super) struct Unique(pub(super) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unique(value))) = members.next_entry::<String, _>()? {
            if object.contains_key(&name) {
                let name: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("`{name}` occurs twice in one object")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_are_refused_at_any_depth() {
        let json = r#"{"a":[{"b":1,"c":-1.5e3},{"b":null}],"b":{"a":"\u0061","e":true,"i":-7}}"#;
        let Unique(read) = serde_json::from_str(json).unwrap();
        assert_eq!(read, serde_json::from_str::<Value>(json).unwrap());
        for (json, name) in [
            (r#"{"a":1,"a":1}"#, "`a`"),
            (r#"{"x":[{"content":1,"role":2,"content":3}]}"#, "`content`"),
            (r#"{"x":{"b":1,"\u0062":2}}"#, "`b`"),
        ] {
            let error = serde_json::from_str::<Unique>(json).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains("twice"), "{error}");
        }
        // What cannot be read cannot be checked.
        for json in [r#"{"a":1e999}"#.to_owned(), r#"{"a":"\ud800"}"#.to_owned(), "[".repeat(200)] {
            assert!(serde_json::from_str::<Unique>(&json).is_err(), "{json}");
        }
    }
}
