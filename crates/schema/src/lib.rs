//! Lowers any JSON Schema to the part that model servers accept, and validates values against the original.
//!
//! Model servers turn a schema into a grammar, and each accepts another part of JSON Schema: llama.cpp
//! refuses a property without a type, OpenAI's strict mode refuses optional properties and `oneOf`.
//! [`Schema::read`] reads a schema into few [`Shape`]s that all of them have. What a shape cannot say
//! (patterns, ranges, conditions) is left to [`Validator`], whose errors go to the model.

mod facts;
mod pointer;
mod read;
mod restore;
mod shape;
mod signature;
mod validate;
mod write;

pub use shape::{Property, Schema, Shape};
pub use validate::Validator;
pub use write::{Form, first_sentence};
