//! Skills: list, show, put and delete, under the same rules as for tools.

use api::{PutSkill, Skill, SkillDetails, SkillFilter};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;

use control::{SkillTarget, SkillWriter, ToolError};
use store::{clock, entity::skill};

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};

const FIELD: &str = "skill";
const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 200;

fn convert(error: ToolError) -> Error {
    convert_tool_error(FIELD, error)
}

impl Admin {
    /// Lists skills by name and scope.
    pub(crate) async fn list_skills(&self, actor: &Actor, filter: &SkillFilter) -> Result<Vec<Skill>, Error> {
        actor.ensure_admin()?;
        let mut query = skill::Entity::find()
            .order_by_asc(skill::Column::Name)
            .order_by_asc(skill::Column::ScopeType)
            .order_by_asc(skill::Column::ScopeId);
        let equal = [
            (skill::Column::ScopeType, filter.scope.map(|scope| scope.as_str())),
            (skill::Column::ScopeId, filter.scope_id.as_deref()),
            (skill::Column::Name, filter.name.as_deref()),
        ];
        for (column, wanted) in equal {
            if let Some(wanted) = wanted {
                query = query.filter(column.eq(wanted));
            }
        }
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let offset = u64::from(filter.offset.unwrap_or_default());
        let rows = query.offset(offset).limit(limit).all(self.store.read()).await?;
        Ok(rows.into_iter().map(|row| describe(row).skill).collect())
    }

    /// Returns a skill with its content.
    pub(crate) async fn get_skill(&self, actor: &Actor, id: &str) -> Result<SkillDetails, Error> {
        actor.ensure_admin()?;
        let row = skill::Entity::find_by_id(id).one(self.store.read()).await?;
        Ok(describe(row.ok_or_else(|| Error::not_found("skill", id))?))
    }

    /// Creates a skill or changes its texts. Fails with [`Error::Invalid`] if a text contains something
    /// malicious.
    pub(crate) async fn put_skill(&self, actor: &Actor, new: PutSkill) -> Result<Skill, Error> {
        const WHAT: &str = "admin.skill.put";
        self.require_admin(actor, WHAT).await?;
        let user = check::scope_id("user_id", new.user_id.as_deref())?.map(String::from);
        let project = check::scope_id("project_id", new.project_id.as_deref())?.map(String::from);
        let target = SkillTarget::new(new.name.clone(), user, project).map_err(convert)?;
        let open = self.begin(actor, WHAT, &json!({ "new": new })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let writer = SkillWriter::of_administrator(&db, clock::now(), actor.author());
        let row = writer.put(target, new.description, new.content, new.version).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(describe(row).skill)
    }

    /// Deletes a skill and returns what it was. Fails with [`Error::Conflict`] if it has another version
    /// than the given one.
    pub(crate) async fn delete_skill(
        &self,
        actor: &Actor,
        id: &str,
        version: Option<i64>,
    ) -> Result<Skill, Error> {
        const WHAT: &str = "admin.skill.delete";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id, "version": version })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let writer = SkillWriter::of_administrator(&db, clock::now(), actor.author());
        let row = writer.delete(id, version).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(describe(row).skill)
    }
}

fn describe(row: skill::Model) -> SkillDetails {
    let skill = Skill {
        id: row.id,
        name: row.name,
        scope: row.scope_type,
        scope_id: Some(row.scope_id).filter(|id| !id.is_empty()),
        description: row.description,
        read_only: row.read_only,
        size: row.content.len(),
        version: row.version,
        created_at: clock::text(row.created_at),
        updated_at: clock::text(row.updated_at),
        updated_by: row.updated_by,
    };
    SkillDetails { skill, content: row.content }
}
