//! P19: whether the preferences of a user allow a provider.

use contract::{
    egress::{Denial, DenialCode},
    preference::resolve,
};
use policy::{AgentKind, Facts, Lease, has_effect};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::Value;
use store::entity::preference;
use subjects::PreferenceScope;

use crate::{
    Context, ToolError,
    tools::preferences::{ScopeSet, parse_entry},
};

/// Denies a provider that the effective preference of the agent type does not name. No preference allows
/// none.
pub(super) async fn check_provider(
    context: &Context<'_>,
    agent: AgentKind,
    lease: &Lease,
    facts: &Facts,
    provider: &str,
) -> Result<Option<Denial>, ToolError> {
    let key = format!("agents.{agent}.model_routing.allowed_external_providers");
    let task = lease.task_id.as_ref().and_then(|task| facts.tasks.get(task));
    let project = lease.project_id.clone().or_else(|| task.and_then(|task| task.project.clone()));
    let user = &lease.user_id;
    let scopes =
        ScopeSet { user: Some(user.clone()), groups: Vec::new(), project, task: lease.task_id.clone() };
    let of_groups = preference::Column::ScopeType.eq(PreferenceScope::Group.as_str());
    let rows = preference::Entity::find()
        .filter(preference::Column::Key.eq(&key))
        .filter(preference::Column::Deleted.eq(false))
        .filter(scopes.condition().add(of_groups))
        .all(&context.db)
        .await?;
    let rows = rows.into_iter().filter(|row| has_effect(&row.key, &row.updated_by));
    let (groups, others): (Vec<_>, Vec<_>) =
        rows.partition(|row| row.scope_type == PreferenceScope::Group.as_str());
    let effective = resolve(others.into_iter().map(parse_entry)).effective.remove(&key);
    let how = format!(
        "an administrator can allow it with `cynodectl preferences set {key} '[\"{provider}\"]' --scope user \
         --scope-id {user}`"
    );
    let denied = |why: String| {
        let message = format!("{why}; {how}");
        Some(Denial { code: DenialCode::ProviderNotAllowed, message, retry_after_seconds: None })
    };
    let Some(entry) = effective.filter(|entry| names(&entry.value, provider)) else {
        return Ok(denied(format!("the provider {provider} is not allowed for {user}")));
    };
    // Neither token nor lease names the groups of a user, so any group may be one of them.
    let is_denied_by =
        |row: preference::Model| parse_entry(row).map_or(true, |entry| !names(&entry.value, provider));
    if entry.scope == PreferenceScope::System && groups.into_iter().any(is_denied_by) {
        let why =
            format!("groups differ about the provider {provider}, and the groups of {user} are not known");
        return Ok(denied(why));
    }
    Ok(None)
}

/// Returns whether a preference, a string or an array of strings, names a provider.
fn names(value: &Value, provider: &str) -> bool {
    match value {
        Value::String(name) => name == provider,
        Value::Array(items) => items.iter().any(|name| name == provider),
        _ => false,
    }
}
