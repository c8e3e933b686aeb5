//! Settings of a program: flag > file > environment > default, each value with its source.
//!
//! A program declares its settings as sections (`section!`), loads them with [`Program::load`], and turns
//! them into its own checked configuration with a [`Checker`], which names key, source and remedy of a value
//! that it refuses. The NATS and telemetry settings are the same for all programs, and so is what [`command`]
//! has.

mod checker;
pub mod command;
mod environment;
mod error;
mod flags;
mod load;
mod nats;
mod program;
mod reference;
mod renamed;
mod section;
mod sources;
mod telemetry_section;
mod text;

pub use checker::Checker;
pub use command::Report;
pub use error::Error;
pub use flags::Flags;
pub use load::Loaded;
pub use nats::{NatsConnection, NatsTls, nats_options};
pub use program::Program;
pub use section::{Describe, Setting, keys};
pub use telemetry_section::Telemetry;
pub use text::Text;

#[doc(hidden)]
pub mod private {
    //! Used by the expansion of `section!`.
    pub use crate::section::join;
}
