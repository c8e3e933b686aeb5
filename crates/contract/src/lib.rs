//! The contract of the control plane's own tools: names, typed inputs and results, shared by the gateway and
//! its callers. This crate does no I/O.
//!
//! The gateway makes the JSON schemas of its tools from these types: a doc comment on a type or a field is
//! what models read in them. Notes for developers are ordinary comments.

pub mod artifact;
pub mod egress;
pub mod finding;
pub mod key;
pub mod lease;
pub mod memory;
pub mod node;
pub mod preference;
pub mod project;
pub mod sandbox;
pub mod schedule;
pub mod task;
pub mod thread;
pub mod workflow;

mod page;
mod value_type;

pub use page::Page;
pub use value_type::ValueType;

use serde::Serialize;
use serde_json::{Map, Value};

/// The contract of one tool. The type that implements it is the tool's input.
pub trait ToolContract {
    const NAME: &'static str;
    type Output;
}

/// Implements [`ToolContract`]: `tool!("db.task.get": Get => Task);`
#[macro_export]
macro_rules! tool {
    ($name:literal: $input:ty => $output:ty) => {
        impl $crate::ToolContract for $input {
            const NAME: &'static str = $name;
            type Output = $output;
        }
    };
}

/// Returns the arguments of a call. What is not set, that is null or an empty list, is left out.
pub fn arguments<T: ToolContract + Serialize>(input: &T) -> Map<String, Value> {
    // Our own types always serialize; should one not, `encode_json` reports it.
    let arguments: Map<String, Value> =
        serde_json::from_slice(&subjects::encode_json(input)).unwrap_or_default();
    let is_set = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    arguments.into_iter().filter(|(_, value)| is_set(value)).collect()
}
