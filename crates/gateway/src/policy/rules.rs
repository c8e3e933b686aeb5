use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AgentKind, Caller, Pattern, pattern::glob};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
}

/// What an argument has to look like for a rule to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// A JSON pointer into the arguments, as `/url`.
    pub argument: String,
    /// `*` stands for any run of letters.
    pub glob: String,
}

/// An access rule. The first that applies decides; where none applies, the call goes on. A rule can never permit what the
/// tool's settings, its scope or the role's list deny.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub id: String,
    pub effect: Effect,
    /// All of them when nothing is said.
    pub agent: Option<AgentKind>,
    pub user: Option<String>,
    pub tool: Pattern,
    pub condition: Option<Condition>,
}

impl Rule {
    fn applies(&self, caller: &Caller, tool: &str, arguments: &Map<String, Value>) -> bool {
        let user = caller.agent.bound().map(|bound| &bound.user);
        self.tool.matches(tool)
            && self.agent.is_none_or(|agent| agent == caller.agent.kind())
            && self.user.as_ref().is_none_or(|wanted| user == Some(wanted))
            && self.condition.as_ref().is_none_or(|condition| condition.holds(self.effect, arguments))
    }
}

impl Condition {
    /// One element of a list that looks as described is enough to deny; to allow, all must.
    fn holds(&self, effect: Effect, arguments: &Map<String, Value>) -> bool {
        let (first, rest) = match self.argument.trim_start_matches('/').split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (self.argument.trim_start_matches('/'), None),
        };
        let found = arguments.get(first).and_then(|value| match rest {
            Some(rest) => value.pointer(&format!("/{rest}")),
            None => Some(value),
        });
        match (found, effect) {
            (None, _) => false,
            (Some(Value::Array(values)), Effect::Deny) => values.iter().any(|value| self.matches(value)),
            (Some(Value::Array(values)), Effect::Allow) => {
                !values.is_empty() && values.iter().all(|value| self.matches(value))
            }
            (Some(value), _) => self.matches(value),
        }
    }

    fn matches(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => glob(&self.glob, text),
            other => glob(&self.glob, &other.to_string()),
        }
    }
}

/// The rule that decides, if there is one.
pub(super) fn first<'r>(
    rules: &'r [Rule],
    caller: &Caller,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Option<&'r Rule> {
    rules.iter().find(|rule| rule.applies(caller, tool, arguments))
}
