//! Secrets: how they look in text, the files that hold them, and signing keys.

pub mod file;
mod redact;
mod redact_by_kind;
mod shapes;
pub mod signing_key;
mod stream;

pub use redact::{find_in_name, is_name, redact};
pub use redact_by_kind::redact_by_kind;
pub use shapes::find;
pub use stream::StreamRedactor;
