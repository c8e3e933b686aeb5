//! The types of the values of preferences and settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of the value of a preference or setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    Json,
}

impl ValueType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
            Self::Json => "json",
        }
    }

    /// Returns the type that is inferred for a value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Json,
            Value::Bool(_) => Self::Boolean,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// Returns whether a value is of this type. A `null` is of every type.
    pub fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) | (Self::Json, _) => true,
            (Self::Integer, Value::Number(number)) => number.is_i64() || number.is_u64(),
            (Self::Number, Value::Number(_)) => true,
            (wanted, value) => wanted == Self::of(value),
        }
    }
}
