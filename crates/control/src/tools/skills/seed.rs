//! Installs the default skill, which every agent starts with.

use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
};
use uuid::Uuid;

use super::SkillScope;
use store::{Store, clock, entity::skill};

const NAME: &str = "cynode-interaction";
const DESCRIPTION: &str = "How an agent gets things done here, whatever its role: the map, tool names, how \
                           to ask, what to do when it does not work.";
/// P17: the same text that is part of every request to a model.
const CONTENT: &str = include_str!("../../../../../instructions/skills/cynode-interaction.md");
const AUTHOR: &str = "system";

/// Inserts the default skill into the store, or updates it. It is read-only for agents, so it changes in no
/// other way.
pub async fn seed(store: &Store) -> Result<(), DbErr> {
    let write = store.write().await?;
    let now = clock::now();
    let new = skill::Model {
        id: Uuid::now_v7().to_string(),
        name: NAME.to_owned(),
        scope_type: SkillScope::System.as_str().to_owned(),
        scope_id: String::new(),
        description: DESCRIPTION.to_owned(),
        content: CONTENT.to_owned(),
        read_only: true,
        version: 1,
        created_at: now,
        updated_at: now,
        updated_by: AUTHOR.to_owned(),
    };
    // Several instances may start at the same time.
    skill::Entity::insert(skill::ActiveModel::from(new))
        .on_conflict_do_nothing_on([skill::Column::ScopeType, skill::Column::ScopeId, skill::Column::Name])
        .exec_without_returning(&*write)
        .await?;
    let found = skill::Entity::find()
        .filter(skill::Column::ScopeType.eq(SkillScope::System.as_str()))
        .filter(skill::Column::Name.eq(NAME))
        .lock_exclusive()
        .one(&*write)
        .await?;
    if let Some(row) = found
        && (row.content != CONTENT || row.description != DESCRIPTION || !row.read_only)
    {
        let version = row.version + 1;
        let mut change = skill::ActiveModel::from(row);
        change.description = Set(DESCRIPTION.to_owned());
        change.content = Set(CONTENT.to_owned());
        change.read_only = Set(true);
        change.version = Set(version);
        change.updated_at = Set(now);
        change.updated_by = Set(AUTHOR.to_owned());
        change.update(&*write).await?;
    }
    write.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::skills::scan::scan;

    #[test]
    fn the_default_skill_passes_the_scan() {
        assert_eq!(scan(CONTENT), None);
        assert_eq!(scan(DESCRIPTION), None);
    }
}
