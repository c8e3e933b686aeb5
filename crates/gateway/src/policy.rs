//! Who may call what. Everything here is pure: no store, no clock, no network.
//!
//! [`decide()`] is the one function that permits a call. What reaches a tool takes a [`Permitted`], and nothing else makes
//! one.

mod addresses; // which addresses are public
mod agent; // who calls
mod allowlist; // what a role may call
mod decide; // the decision
mod denial; // why not, and what the caller is told of it
mod governing; // settings that decide about agents
mod ids; // the ids that a call names
mod pattern; // `db.*`
mod rules; // rules that see arguments
mod tool; // what is known about a tool
mod url_glob; // globs against URLs as fetchers read them
mod urls; // addresses that no agent may have fetched

pub use addresses::is_public_address;
pub use agent::{Agent, AgentKind, Bound, Caller, Standing};
pub use allowlist::{FAMILIES, allows};
pub use decide::{Permitted, decide, may_see};
pub use denial::Denial;
pub use governing::{Switch, is_governing};
pub use ids::{Facts, Named, ScopedId, TaskFacts};
pub use pattern::Pattern;
pub use rules::{Condition, Effect, Rule};
pub use tool::{Gate, Origin, Scope, Tool};
pub use urls::is_public as is_public_url;
