//! Values as text, so that each setting parses its own.

use std::fmt;

use figment::value::Value;
use serde::{Deserialize, Deserializer, Serialize, de};

/// A value that is read as text, whatever TOML type it has: a model may be called `123`, and `5` is not a
/// duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Text(pub String);

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }
}

/// Renders a value as TOML. Settings are kept as text; numbers and booleans are shown as what they are.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Empty(..) => "\"\"".to_owned(),
        Value::String(_, text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => text.clone(),
        Value::String(_, text) => format!("{text:?}"),
        Value::Array(_, items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Dict(_, fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key} = {}", show(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Char(_, char) => format!("{char:?}"),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => number.to_i128().map_or_else(
            || number.to_f64().map_or_else(|| "?".to_owned(), |value| value.to_string()),
            |value| value.to_string(),
        ),
    }
}
