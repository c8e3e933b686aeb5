//! Typed values of preferences and settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ToolError, check};

const MAX_VALUE_BYTES: usize = 16 * 1024;

/// The type of the value of a preference or setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ValueType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    Json,
}

impl ValueType {
    pub(super) fn as_str(self) -> &'static str {
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

    fn of(value: &Value) -> Self {
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
    pub(super) fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) | (Self::Json, _) => true,
            (Self::Integer, Value::Number(number)) => number.is_i64() || number.is_u64(),
            (Self::Number, Value::Number(_)) => true,
            (wanted, value) => wanted == Self::of(value),
        }
    }
}

/// A value and its type as they are stored.
#[derive(Clone, Debug)]
pub(super) struct StoredValue {
    pub(super) value: String,
    pub(super) value_type: &'static str,
}

impl StoredValue {
    /// Checks the value against its type, which is inferred if none is given, and against the size limit.
    pub(super) fn new(value: &Value, value_type: Option<ValueType>) -> Result<Self, ToolError> {
        let value_type = value_type.unwrap_or_else(|| ValueType::of(value));
        if !value_type.fits(value) {
            return Err(ToolError::Invalid(format!(
                "the value is not of the type `{}`",
                value_type.as_str()
            )));
        }
        Ok(Self { value: check::to_json("value", value, MAX_VALUE_BYTES)?, value_type: value_type.as_str() })
    }
}
