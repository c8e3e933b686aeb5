//! Access rules: administrators' rules about caller, tool and arguments.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AgentKind, Caller, Pattern, pattern::glob, url_glob, urls};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
}

/// A condition on an argument that must hold for a rule to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Condition {
    /// A JSON pointer into the arguments, such as `/url`.
    pub argument: String,
    /// Each `*` stands for any characters.
    pub glob: String,
}

/// An access rule. The first rule that applies decides; if none applies, the call is not affected. A rule
/// never permits what the tool's settings, its scope or the agent type's allowlist deny.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rule {
    pub id: String,
    pub effect: Effect,
    /// `None` applies to all agent types.
    pub agent: Option<AgentKind>,
    pub user: Option<String>,
    pub tool: Pattern,
    pub condition: Option<Condition>,
}

impl Rule {
    fn applies(&self, caller: &Caller, tool: &str, arguments: &Map<String, Value>) -> bool {
        self.tool.matches(tool)
            && self.agent.is_none_or(|agent| agent == caller.agent.kind() || agent == caller.agent.acts_as())
            && self.user.as_ref().is_none_or(|wanted| caller.user() == Some(wanted))
            && self.condition.as_ref().is_none_or(|condition| condition.holds(self.effect, tool, arguments))
    }
}

impl Condition {
    /// Returns whether the condition holds. For a list, one matching value is enough to deny; to allow, all
    /// must match.
    fn holds(&self, effect: Effect, tool: &str, arguments: &Map<String, Value>) -> bool {
        let found = self.find(arguments);
        // A fetcher may take a URL under any argument name, so a condition on URLs is checked against all of
        // them.
        let all_urls = urls::is_fetcher(tool) && self.is_about_urls();
        match effect {
            Effect::Deny => {
                let named = found.is_some_and(|value| self.denies(value, all_urls));
                named
                    || (all_urls
                        && urls::all_urls(arguments, url_glob::has_specific_host(&self.glob))
                            .iter()
                            .any(|text| self.denies_text(text, true)))
            }
            Effect::Allow => {
                let others =
                    || urls::all_urls(arguments, false).iter().all(|text| url_glob::allows(&self.glob, text));
                found.is_some_and(|value| self.allows(value)) && (!all_urls || others())
            }
        }
    }

    fn find<'v>(&self, arguments: &'v Map<String, Value>) -> Option<&'v Value> {
        let (first, rest) = match self.argument.trim_start_matches('/').split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (self.argument.trim_start_matches('/'), None),
        };
        arguments.get(first).and_then(|value| match rest {
            Some(rest) => value.pointer(&format!("/{rest}")),
            None => Some(value),
        })
    }

    fn is_about_urls(&self) -> bool {
        let name = self.argument.rsplit('/').next().unwrap_or_default();
        self.glob.contains("://") || urls::is_url_name(name)
    }

    fn denies(&self, value: &Value, bare: bool) -> bool {
        match value {
            Value::String(text) => self.denies_text(text, bare),
            Value::Array(values) => values.iter().any(|value| self.denies(value, bare)),
            Value::Object(members) => {
                glob(&self.glob, &value.to_string()) || members.values().any(|value| self.denies(value, bare))
            }
            other => glob(&self.glob, &other.to_string()),
        }
    }

    fn denies_text(&self, text: &str, bare: bool) -> bool {
        url_glob::denies(&self.glob, text, bare)
    }

    fn allows(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => url_glob::allows(&self.glob, text),
            Value::Array(values) => !values.is_empty() && values.iter().all(|value| self.allows(value)),
            other => glob(&self.glob, &other.to_string()),
        }
    }
}

/// Returns the first rule that applies to a call.
pub(super) fn first_applicable<'r>(
    rules: &'r [Rule],
    caller: &Caller,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Option<&'r Rule> {
    rules.iter().find(|rule| rule.applies(caller, tool, arguments))
}
