//! Memory profiles: which one a user has, and which may reach the network.

use policy::{MemoryProfile, NetworkProfiles, has_effect};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter};
use serde_json::Value;
use store::entity::{preference, system_setting};
use subjects::PreferenceScope;

use crate::ToolError;

/// Returns the memory profile that an administrator has set for a user; `None` if none is set.
pub(super) async fn of_user(
    db: &DatabaseExecutor<'_>,
    user: &str,
) -> Result<Option<MemoryProfile>, ToolError> {
    let set = preference::Entity::find()
        .filter(preference::Column::ScopeType.eq(PreferenceScope::User.as_str()))
        .filter(preference::Column::ScopeId.eq(user))
        .filter(preference::Column::Key.eq(MemoryProfile::USER_SETTING))
        .filter(preference::Column::Deleted.eq(false))
        .one(db)
        .await?;
    let Some(set) = set.filter(|set| has_effect(&set.key, &set.updated_by)) else { return Ok(None) };
    // A name that cannot be read must not become the profile that others share.
    serde_json::from_str::<Option<MemoryProfile>>(&set.value).map_err(|_| {
        let key = MemoryProfile::USER_SETTING;
        ToolError::Invalid(format!(
            "the preference {key} of user {user} is {:.100}, which is not the name of a memory profile; an \
             administrator can change it with `cynodectl preferences set {key} NAME --scope user --scope-id \
             {user}`",
            set.value
        ))
    })
}

/// Returns whether calls with a memory profile may reach the network (G13).
pub(super) async fn may_reach_network(
    db: &DatabaseExecutor<'_>,
    profile: &MemoryProfile,
) -> Result<bool, ToolError> {
    let setting = system_setting::Entity::find_by_id(profile.network_setting()).one(db).await?;
    let setting = setting.filter(|setting| has_effect(&setting.key, &setting.updated_by));
    let decided: NetworkProfiles =
        setting.into_iter().map(|setting| (profile.clone(), setting.value == "true")).collect();
    Ok(decided.allow(profile))
}

/// Fails if a preference looks like one about memory profiles and would have no effect.
pub(super) fn check_preference(scope: &str, key: &str, value: &Value) -> Result<(), ToolError> {
    if MemoryProfile::of_network_setting(key).is_some() {
        let why = format!("{key} is a system setting: `cynodectl settings set {key} true`");
        return Err(ToolError::Invalid(why));
    }
    if key != MemoryProfile::USER_SETTING {
        return Ok(());
    }
    if scope != PreferenceScope::User.as_str() {
        return Err(ToolError::Invalid(format!(
            "{key} is a preference in the scope of a user: `--scope user`"
        )));
    }
    let is_name = |name: &str| name.parse::<MemoryProfile>().is_ok();
    if value.is_null() || value.as_str().is_some_and(is_name) {
        return Ok(());
    }
    let why = policy::InvalidProfile;
    Err(ToolError::Invalid(format!("the value must be the name of a memory profile: {why}")))
}
