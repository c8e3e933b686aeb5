//! The tools that the gateway serves.
//!
//! - [`catalogue`]: a snapshot of all tools, their settings and the access rules
//! - [`upstreams`]: connections to upstreams, and the pins of what they offer
//! - [`sanitize`], [`canonical`]: definitions of tools as text that is safe to show and to compare

pub mod catalogue;
pub mod upstreams;

pub use subjects::canonical;
pub use upstream::sanitize;
