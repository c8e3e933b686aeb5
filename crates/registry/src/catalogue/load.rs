//! Loads the catalogue from the store.

use std::{collections::BTreeMap, sync::Arc};

use rmcp::model::{Tool as Definition, ToolAnnotations};
use sea_orm::{DbErr, EntityTrait, QueryOrder};
use serde_json::Value;
use tracing::warn;

use super::{Backend, Catalogue, Effect, ServedTool, UpstreamTool};
use policy::{
    ADMINISTRATOR, Condition, FAMILIES, Gate, MemoryProfile, NetworkProfiles, Origin, Pattern, Rule, Scope,
    ScopedId, Switch, Tool,
};

use control::{Does, Entry};
use store::{
    Store,
    entity::{access_rule, revision, system_setting, tool_setting, upstream, upstream_tool},
};

pub(super) async fn catalogue(store: &Store, built_in: &[Arc<Entry>]) -> Result<Catalogue, DbErr> {
    let db = store.read();
    // The revision first: a change during the load is then loaded again.
    let revision = revision::Entity::find_by_id(1).one(db).await?;
    let revision = revision.ok_or_else(|| DbErr::RecordNotFound("the revision".to_owned()))?.value;
    let settings = tool_setting::Entity::find().all(db).await?;
    let settings: BTreeMap<String, tool_setting::Model> =
        settings.into_iter().map(|setting| (setting.name.clone(), setting)).collect();
    let system = by_administrators(system_setting::Entity::find().all(db).await?);
    let (open, network) = (open_switches(&system), Arc::new(network_profiles(&system)));
    let mut tools = BTreeMap::new();
    for entry in built_in {
        let served = serve_built_in(entry, settings.get(entry.name), &open, &network);
        tools.insert(entry.name.to_owned(), served);
    }
    let servers = upstream::Entity::find().all(db).await?;
    let servers: BTreeMap<String, Arc<upstream::Model>> =
        servers.into_iter().map(|server| (server.namespace.clone(), Arc::new(server))).collect();
    for row in upstream_tool::Entity::find().all(db).await? {
        let server = servers.get(&row.namespace).filter(|server| server.enabled);
        // Built-in tools take precedence: no upstream tool can replace one.
        if let Some(server) = server
            && !tools.contains_key(&row.name)
            && let Some(served) = serve_upstream_tool(server, &row, settings.get(&row.name), &network)
        {
            tools.insert(row.name.clone(), served);
        }
    }
    let rules = access_rule::Entity::find().order_by_asc(access_rule::Column::Position).all(db).await?;
    Ok(Catalogue { revision, tools, rules: rules.into_iter().map(rule).collect() })
}

/// Removes the settings that an agent wrote: they decide nothing.
fn by_administrators(mut settings: Vec<system_setting::Model>) -> Vec<system_setting::Model> {
    settings.retain(|setting| setting.updated_by.starts_with(ADMINISTRATOR));
    settings
}

/// Returns the switches that are on.
fn open_switches(settings: &[system_setting::Model]) -> Vec<Switch> {
    let open = settings.iter().filter(|setting| setting.value == "true");
    open.filter_map(|setting| Switch::of(&setting.key)).collect()
}

/// Returns the memory profiles that are opened to the network, or closed. Any value but `true` closes one.
fn network_profiles(settings: &[system_setting::Model]) -> NetworkProfiles {
    let decided = |setting: &system_setting::Model| {
        Some((MemoryProfile::of_network_setting(&setting.key)?, setting.value == "true"))
    };
    settings.iter().filter_map(decided).collect()
}

/// Returns the configured scope; the default if there is none or it is unreadable.
fn scope_of(setting: Option<&tool_setting::Model>, default: Scope) -> Scope {
    setting.and_then(|setting| setting.scope.parse().ok()).unwrap_or(default)
}

fn serve_built_in(
    entry: &Arc<Entry>,
    setting: Option<&tool_setting::Model>,
    open: &[Switch],
    network: &Arc<NetworkProfiles>,
) -> ServedTool {
    let gate = entry.gate.map(|switch| Gate { setting: switch.key(), open: open.contains(&switch) });
    let reads = entry.does == Does::Read;
    let mut definition = Definition::new(entry.name, entry.description, entry.input.clone());
    definition.title = Some(entry.title.to_owned());
    definition.output_schema = Some(entry.output.clone());
    definition.annotations = Some(
        ToolAnnotations::with_title(entry.title)
            .read_only(reads)
            .destructive(false)
            .idempotent(reads)
            .open_world(entry.reaches_network),
    );
    ServedTool {
        policy: Tool {
            name: entry.name.to_owned(),
            origin: Origin::BuiltIn,
            enabled: setting.is_none_or(|setting| setting.enabled),
            scope: scope_of(setting, entry.scope),
            quarantined: false,
            needs: entry.needs.to_vec(),
            gate,
            network: entry.reaches_network.then(|| network.clone()),
        },
        definition,
        has_header_arguments: false,
        backend: Backend::BuiltIn(entry.clone()),
    }
}

fn serve_upstream_tool(
    server: &Arc<upstream::Model>,
    row: &upstream_tool::Model,
    setting: Option<&tool_setting::Model>,
    network: &Arc<NetworkProfiles>,
) -> Option<ServedTool> {
    // A tool that was never approved has no definition to serve.
    let pinned = row.pinned.as_ref()?;
    let definition = match serde_json::from_str::<Definition>(pinned) {
        Ok(definition) => definition,
        Err(error) => {
            warn!(%error, tool = row.name, "Stored tool definition unreadable; tool not served.");
            return None;
        }
    };
    let mut definition = crate::sanitize::tool(definition, &row.name);
    Effect::of(server, setting, definition.annotations.as_ref()).annotate(&mut definition);
    let schema = Value::Object((*definition.input_schema).clone());
    let arguments = match schema::Validator::new(&schema) {
        Ok(validator) => Some(validator),
        Err(error) => {
            warn!(error, tool = row.name, "Tool schema invalid; only the upstream checks arguments.");
            None
        }
    };
    let is_family = row.name.split('.').next().is_some_and(|family| FAMILIES.contains(&family));
    let origin = if is_family { Origin::Family } else { Origin::Installed { owner: server.owner.clone() } };
    let server_scope = server.scope.parse().unwrap_or(Scope::Pm);
    Some(ServedTool {
        policy: Tool {
            name: row.name.clone(),
            origin,
            enabled: setting.is_none_or(|setting| setting.enabled),
            scope: scope_of(setting, server_scope),
            quarantined: row.state != upstream_tool::APPROVED,
            needs: required_ids(&schema),
            gate: None,
            // Whatever its hints claim: the gateway cannot see what an upstream does.
            network: Some(network.clone()),
        },
        definition,
        has_header_arguments: mcp::has_header_arguments(&schema),
        backend: Backend::Upstream(Arc::new(UpstreamTool {
            server: server.clone(),
            remote: row.remote.clone(),
            arguments,
            safe_to_repeat: setting.is_some_and(|setting| setting.safe_to_repeat),
        })),
    })
}

/// Returns the ids that the schema requires; the tool is scoped by them (M103–M105).
fn required_ids(schema: &Value) -> Vec<ScopedId> {
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_required = |id: &ScopedId| required.iter().any(|name| name.as_str() == Some(id.argument()));
    [ScopedId::Task, ScopedId::Run, ScopedId::Job].into_iter().filter(is_required).collect()
}

/// Converts a row into a rule. An unreadable row becomes a rule that denies its tools to every caller.
fn rule(row: access_rule::Model) -> Rule {
    let agent = row.agent.as_deref().map(str::parse).transpose();
    let condition = match (row.argument, row.matches) {
        (None, None) => Ok(None),
        (Some(argument), Some(glob)) => Ok(Some(Condition { argument, glob })),
        _ => Err(()),
    };
    let tool = Pattern::new(row.tool);
    match (row.effect.as_str(), agent, condition) {
        ("allow", Ok(agent), Ok(condition)) => {
            Rule { id: row.id, effect: policy::Effect::Allow, agent, user: row.user_id, tool, condition }
        }
        ("deny", Ok(agent), Ok(condition)) => {
            Rule { id: row.id, effect: policy::Effect::Deny, agent, user: row.user_id, tool, condition }
        }
        _ => {
            warn!(rule = row.id, "Access rule unreadable; it denies every call.");
            Rule { id: row.id, effect: policy::Effect::Deny, agent: None, user: None, tool, condition: None }
        }
    }
}
