//! Secrets: how they look in text, the files that hold them, and signing keys.

pub mod file;
mod redact;
mod shapes;
pub mod signing_key;

pub use redact::redact;
pub use shapes::find;
