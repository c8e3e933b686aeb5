//! `egress.*`: calls of agents to external providers of models, made by orchestrators.
//!
//! A call is decided as if the agent itself asked: by its token, its lease, the preferences of its user and
//! the budget. Whatever cannot be resolved is denied.

mod agent;
mod allowed;
mod begin;
mod budget;
mod end;
mod usage;

use contract::egress::{Begin, Consumption, End, Usage};
use store::clock;

pub use self::{
    budget::{close_lost_calls, delete_old_calls},
    usage::list_usage,
};
use crate::{Entry, ToolError};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Begin>(), Entry::of::<End>(), Entry::of::<Usage>()]
}

/// Returns the day of a time in UTC: `2026-11-17`.
fn day(now: i64) -> String {
    clock::text(now).chars().take_while(|letter| *letter != 'T').collect()
}

/// The usage of a call, as the store counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    prompt_tokens: i64,
    completion_tokens: i64,
    /// Millionths of a US dollar.
    micro_usd: i64,
}

impl Amount {
    fn new(used: &Consumption) -> Result<Self, ToolError> {
        let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        Ok(Self {
            prompt_tokens: tokens(used.prompt_tokens),
            completion_tokens: tokens(used.completion_tokens),
            micro_usd: micro_usd("usd", used.usd)?,
        })
    }

    fn tokens(self) -> i64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_sub(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_sub(other.completion_tokens),
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
        }
    }
}

/// Returns an amount of US dollars in millionths.
fn micro_usd(what: &str, usd: f64) -> Result<i64, ToolError> {
    const MAX_USD: f64 = 1e9;
    if !(0.0..=MAX_USD).contains(&usd) {
        return Err(ToolError::Invalid(format!("`{what}` must be 0 to {MAX_USD} US dollars")));
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 1e15, which a double holds exactly")]
    Ok((usd * 1e6).round() as i64)
}
