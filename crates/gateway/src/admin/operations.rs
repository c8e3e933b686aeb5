//! What administrators and users can do, whichever way they come in. Every change is one transaction and one audit row; what is
//! done in NATS is announced before, and has its row after.

mod audit; // looking back
mod catalogues; // what agents read about: projects, personas, nodes, models
mod dead; // handoffs that were given up
mod handoffs; // what was done on a handoff
mod namespaces; // names for servers, pure
mod preferences; // what holds for users, groups, projects, tasks
mod quarantine; // tools that wait for somebody to look at them
mod refresh; // asking servers what they offer
mod rules; // access rules
mod settings; // of the whole system
mod tokens; // issue, list, revoke
mod tools; // on, off, for whom
mod transport; // how a server is reached
mod upstreams; // servers behind us
mod work; // queues, instances, what is in work

pub use audit::{Heads, Pruned, Verified};
pub use catalogues::{Model, Node, Persona, Project, PutModel, PutNode, PutPersona, PutProject};
pub use dead::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter};
pub use handoffs::{Answered, Attempt, AttemptEnd, Did, DidWhat, Life, LifeState, Outcome, Torn};
pub use preferences::{Preference, PreferenceAddress, PreferenceFilter, PutPreference};
pub use quarantine::{Difference, Waiting, Why};
pub use refresh::Added;
pub use rules::{AccessRule, NewRule};
pub use settings::{PutSetting, Setting};
pub use tokens::{IssuedToken, NewToken, RotatedToken, Token, TokenFilter, TokenFor, TokenState};
pub use tools::{
    DoesChange, Tool, ToolChange, ToolDetails, ToolDoes, ToolDoesBy, ToolGate, ToolOrigin, ToolState,
};
pub use upstreams::{NewUpstream, ToolCounts, Upstream, UpstreamChange};
pub(crate) use work::Glance;
pub use work::Work;

pub use crate::upstreams::{Http, Reach, Stdio, Transport};
