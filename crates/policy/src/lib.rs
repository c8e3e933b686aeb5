//! Decides which caller may call which tool with which arguments. Pure: no store, no clock, no network.
//!
//! [`decide()`] is the only function that permits a call. Running a tool requires the [`Permitted`] that it
//! returns.

mod addresses;
mod agent;
mod agent_kind;
mod allowlist;
mod decide;
mod denial;
mod governing;
mod ids;
mod lease;
mod network_host;
mod on_disconnect;
mod pattern;
mod profile;
mod rules;
mod scoped_id;
mod tool;
mod url_glob;
mod urls;

pub use addresses::is_public_address;
pub use agent::{Agent, Bounds, Caller, Standing, TokenBinding};
pub use agent_kind::AgentKind;
pub use allowlist::{FAMILIES, allows, describe_allowlist, may_call};
pub use decide::{Permitted, Visible, check_acting_for, check_listing, check_visible, decide};
pub use denial::{DENIED_CODE, Denial};
pub use governing::{ADMINISTRATOR, GOVERNING, START_WHEN_READY, Switch, has_effect, is_governing};
pub use ids::{CallIds, Facts, TaskFacts};
pub use lease::{InvalidLease, Lease, LeaseMode, LeaseStanding, MAX_LEASE_BYTES};
pub use network_host::{Host, InvalidHost, NetworkHost};
pub use on_disconnect::OnDisconnect;
pub use pattern::Pattern;
pub use profile::{InvalidProfile, MemoryProfile, NetworkProfiles, is_profile_setting};
pub use rules::{Condition, Effect, Rule};
pub use scoped_id::ScopedId;
pub use tool::{Gate, Origin, Scope, Tool};
pub use urls::is_public as is_public_url;
