use rmcp::model::Tool as Shown;
use serde_json::Value;

use super::{Tool, ToolDetails, ToolDoes, ToolDoesBy, ToolGate, ToolOrigin, ToolState, state};
use crate::{
    catalogue::{DoesBy, Effect, Runs, Served},
    policy::{self, Origin, Scope},
    sanitize,
    store::entity::{tool_setting, upstream, upstream_tool},
    tools::Does,
};

/// A tool that runs in here.
pub(super) fn own(served: &Served) -> Option<ToolDetails> {
    let Runs::Own(entry) = &served.runs else { return None };
    let policy = &served.policy;
    let (does, safe_to_repeat) = match entry.does {
        Does::Read => (ToolDoes::Read, true),
        Does::Write => (ToolDoes::Write, false),
    };
    let gate = policy.gate.as_ref();
    Some(ToolDetails {
        tool: Tool {
            name: policy.name.clone(),
            title: Some(entry.title.to_owned()),
            description: entry.description.to_owned(),
            origin: ToolOrigin::Own,
            namespace: None,
            remote: None,
            owner: None,
            enabled: policy.enabled,
            scope: policy.scope,
            does,
            does_by: ToolDoesBy::Gateway,
            safe_to_repeat,
            state: ToolState::Approved,
            gate: gate.map(|gate| ToolGate { setting: gate.setting.to_owned(), open: gate.open }),
            needs: needs(policy),
        },
        input_schema: Value::Object((*entry.input).clone()),
        output_schema: Some(Value::Object((*entry.output).clone())),
    })
}

/// A tool of a server behind us, served or not. What strangers wrote is shown as it is served.
pub(super) fn behind(
    row: upstream_tool::Model,
    server: &upstream::Model,
    setting: Option<&tool_setting::Model>,
    served: Option<&policy::Tool>,
) -> ToolDetails {
    let origin = match served.map(|policy| &policy.origin) {
        Some(Origin::Family) => ToolOrigin::Family,
        Some(Origin::Own | Origin::Installed { .. }) | None => ToolOrigin::Installed,
    };
    let scope = setting.map_or(&server.scope, |setting| &setting.scope).parse();
    let text = row.pinned.as_ref().or(row.offered.as_ref());
    let shown = text.and_then(|text| serde_json::from_str::<Shown>(text).ok());
    let shown = shown.map(|shown| sanitize::tool(shown, &row.name)).unwrap_or_default();
    let effect = Effect::of(server, setting, shown.annotations.as_ref());
    ToolDetails {
        tool: Tool {
            name: row.name,
            title: shown.title,
            description: shown.description.unwrap_or_default().into_owned(),
            origin,
            namespace: Some(row.namespace),
            remote: Some(row.remote),
            owner: server.owner.clone(),
            enabled: setting.is_none_or(|setting| setting.enabled),
            scope: scope.or_else(|_| server.scope.parse()).unwrap_or(Scope::Pm),
            does: match effect.does {
                Does::Read => ToolDoes::Read,
                Does::Write => ToolDoes::Write,
            },
            does_by: match effect.by {
                DoesBy::Administrator => ToolDoesBy::Administrator,
                DoesBy::Server => ToolDoesBy::Server,
                DoesBy::Default => ToolDoesBy::Default,
            },
            safe_to_repeat: setting.is_some_and(|setting| setting.safe_to_repeat),
            state: state(&row.state),
            gate: None,
            needs: served.map(needs).unwrap_or_default(),
        },
        input_schema: Value::Object((*shown.input_schema).clone()),
        output_schema: shown.output_schema.map(|schema| Value::Object((*schema).clone())),
    }
}

fn needs(policy: &policy::Tool) -> Vec<String> {
    policy.needs.iter().map(ToString::to_string).collect()
}
