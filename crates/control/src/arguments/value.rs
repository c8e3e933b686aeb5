//! Typed values of preferences and settings.

use contract::ValueType;
use serde_json::Value;

use crate::{ToolError, arguments::check};

const MAX_VALUE_BYTES: usize = 16 * 1024;

/// A value and its type as they are stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredValue {
    pub(crate) value: String,
    pub(crate) value_type: &'static str,
}

impl StoredValue {
    /// Checks the value against its type, which is inferred if none is given, and against the size limit.
    pub(crate) fn new(value: &Value, value_type: Option<ValueType>) -> Result<Self, ToolError> {
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
