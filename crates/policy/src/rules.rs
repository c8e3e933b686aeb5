//! Access rules: administrators' rules about caller, tool and arguments.

use std::borrow::Cow;

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
        // A name may begin with a slash, escaped, and an argument may have an empty name.
        let pointer = self.argument.strip_prefix('/').unwrap_or(&self.argument);
        match pointer.split_once('/') {
            Some((first, rest)) => arguments.get(&*unescaped(first))?.pointer(&format!("/{rest}")),
            None => arguments.get(&*unescaped(pointer)),
        }
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

/// Returns the name that a segment of a JSON pointer stands for: `~1` is a slash, `~0` a tilde.
fn unescaped(segment: &str) -> Cow<'_, str> {
    match segment.contains('~') {
        true => Cow::Owned(segment.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(segment),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn argument_is_found_by_its_json_pointer() {
        let arguments = json!({
            "url": "plain",
            "a": { "b": "inner", "": "empty inner", "c/d": "slash inner" },
            "a/b": "slash",
            "m~n": "tilde",
            "~1": "tilde and one",
            "/url": "leading slash",
            "": { "url": "below the empty name" },
            "list": ["first", "second"],
        });
        let Value::Object(arguments) = arguments else { panic!() };
        for (pointer, expected) in [
            ("/url", Some("plain")),
            ("url", Some("plain")),
            ("/a/b", Some("inner")),
            ("/a/", Some("empty inner")),
            ("/a/c~1d", Some("slash inner")),
            ("/a~1b", Some("slash")),
            ("/m~0n", Some("tilde")),
            ("/~01", Some("tilde and one")),
            ("/~1url", Some("leading slash")),
            // Only one slash introduces the first segment: the second ends an empty one.
            ("//url", Some("below the empty name")),
            ("/list/1", Some("second")),
            ("/list/2", None),
            ("/missing", None),
            ("/missing/b", None),
            ("/url/b", None),
        ] {
            let condition = Condition { argument: pointer.to_owned(), glob: "*".to_owned() };
            assert_eq!(condition.find(&arguments), expected.map(Value::from).as_ref(), "{pointer}");
        }
    }

    #[test]
    fn rule_about_an_argument_with_an_escaped_name_applies() {
        let Value::Object(arguments) = json!({ "a/b": "secret", "m~n": "secret" }) else { panic!() };
        for argument in ["/a~1b", "/m~0n"] {
            let condition = Condition { argument: argument.to_owned(), glob: "sec*".to_owned() };
            assert!(condition.holds(Effect::Deny, "db.task.get", &arguments), "{argument}");
            assert!(condition.holds(Effect::Allow, "db.task.get", &arguments), "{argument}");
        }
    }

    /// Whatever a fetcher reads as a host is compared with the rules about it.
    #[test]
    fn rule_about_a_host_applies_to_every_spelling_of_it() {
        let condition = Condition { argument: "/url".to_owned(), glob: "https://93.184.216.34*".to_owned() };
        for arguments in [
            json!({ "host": "1572395042" }),
            json!({ "host": 1_572_395_042 }),
            json!({ "url": 1_572_395_042 }),
            json!({ "server": 1_572_395_042 }),
            json!({ "remoteAddress": "0x5db8d822" }),
            json!({ "ips": ["0135.0270.0330.042"] }),
            json!({ "note": "0x5db8d822" }),
            json!({ "note": "%39%33.184.216.34/x" }),
            json!({ "note": "93.184\t.216.34" }),
            json!({ "note": "/\t/93.184.216.34/x" }),
            json!({ "note": "ht\ttps://93.184.216.34/" }),
            json!({ "93.184.216.34": true }),
            json!({ "https://93.184.216.34/": true }),
        ] {
            let Value::Object(map) = &arguments else { panic!() };
            assert!(condition.holds(Effect::Deny, "web.fetch", map), "{arguments}");
        }
        for arguments in [
            json!({ "port": 1_572_395_042 }),
            json!({ "note": "1572395042" }),
            json!({ "count": 1_572_395_042 }),
            json!({ "host": "example.com", "port": 8080 }),
        ] {
            let Value::Object(map) = &arguments else { panic!() };
            assert!(!condition.holds(Effect::Deny, "web.fetch", map), "{arguments}");
        }
    }

    #[test]
    fn rule_that_allows_a_host_is_kept_by_arguments_that_are_no_hosts() {
        let condition = Condition { argument: "/url".to_owned(), glob: "https://docs.example/*".to_owned() };
        for (arguments, expected) in [
            (json!({ "url": "https://docs.example/a", "server": "eu", "port": 443 }), true),
            (json!({ "url": "https://docs.example/a", "proxies": { "retries": 3 } }), true),
            (json!({ "url": "https://docs.example/a", "server": "other.example" }), false),
            (json!({ "url": "https://docs.example/a", "host": 1_572_395_042 }), false),
            (json!({ "url": "https://docs.example/a", "https://other.example/": 1 }), false),
        ] {
            let Value::Object(map) = &arguments else { panic!() };
            assert_eq!(condition.holds(Effect::Allow, "web.fetch", map), expected, "{arguments}");
        }
    }
}
