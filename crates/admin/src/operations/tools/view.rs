//! Builds [`ToolDetails`] from catalogue entries and store rows.

use api::{Tool, ToolDetails, ToolEffect, ToolEffectSource, ToolGate, ToolOrigin, ToolState};
use rmcp::model::Tool as McpTool;
use serde_json::Value;

use super::tool_state;
use policy::{Origin, Scope};

use control::Does;
use registry::{
    catalogue::{Backend, Effect, EffectSource, ServedTool},
    sanitize,
};
use store::entity::{tool_setting, upstream, upstream_tool};

/// Describes a built-in tool; `None` for an upstream tool.
pub(super) fn built_in(served: &ServedTool) -> Option<ToolDetails> {
    let Backend::BuiltIn(entry) = &served.backend else { return None };
    let policy = &served.policy;
    let (does, safe_to_repeat) = match entry.does {
        Does::Read => (ToolEffect::Read, true),
        Does::Write => (ToolEffect::Write, false),
    };
    let gate = policy.gate.as_ref();
    Some(ToolDetails {
        tool: Tool {
            name: policy.name.clone(),
            title: Some(entry.title.to_owned()),
            description: entry.description.to_owned(),
            origin: ToolOrigin::BuiltIn,
            namespace: None,
            remote: None,
            owner: None,
            enabled: policy.enabled,
            scope: policy.scope,
            does,
            does_by: ToolEffectSource::Gateway,
            safe_to_repeat,
            state: ToolState::Approved,
            gate: gate.map(|gate| ToolGate { setting: gate.setting.to_owned(), open: gate.open }),
            reaches_network: policy.network.is_some(),
            needs: needs(policy),
        },
        input_schema: Value::Object((*entry.input).clone()),
        output_schema: Some(Value::Object((*entry.output).clone())),
    })
}

/// Describes an upstream tool, served or not. Texts from the server are sanitized, as they are when served.
pub(super) fn from_row(
    row: upstream_tool::Model,
    server: &upstream::Model,
    setting: Option<&tool_setting::Model>,
    served: Option<&policy::Tool>,
) -> ToolDetails {
    let origin = match served.map(|policy| &policy.origin) {
        Some(Origin::Family) => ToolOrigin::Family,
        Some(Origin::BuiltIn | Origin::Installed { .. }) | None => ToolOrigin::Installed,
    };
    let scope = setting.map_or(&server.scope, |setting| &setting.scope).parse();
    let text = row.pinned.as_ref().or(row.offered.as_ref());
    let shown = text.and_then(|text| serde_json::from_str::<McpTool>(text).ok());
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
                Does::Read => ToolEffect::Read,
                Does::Write => ToolEffect::Write,
            },
            does_by: match effect.source {
                EffectSource::Administrator => ToolEffectSource::Administrator,
                EffectSource::Server => ToolEffectSource::Server,
                EffectSource::Default => ToolEffectSource::Default,
            },
            safe_to_repeat: setting.is_some_and(|setting| setting.safe_to_repeat),
            state: tool_state(&row.state),
            gate: None,
            reaches_network: true,
            needs: served.map(needs).unwrap_or_default(),
        },
        input_schema: Value::Object((*shown.input_schema).clone()),
        output_schema: shown.output_schema.map(|schema| Value::Object((*schema).clone())),
    }
}

fn needs(policy: &policy::Tool) -> Vec<String> {
    policy.needs.iter().map(ToString::to_string).collect()
}
