//! The rules for every change of a skill: whose it is, its name, its size, and what it must not contain.
//! Tools and administrators change skills through [`SkillWriter`] alone.

use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QuerySelect,
};
use uuid::Uuid;

use super::{MAX_CONTENT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, SkillScope, scan::scan};
use store::entity::{project, skill};

use crate::{Context, ToolError, arguments::check, confinement::Confinement};

/// A name in a scope, which together identify a skill.
#[derive(Debug)]
pub struct SkillTarget {
    scope: SkillScope,
    /// The user or the project; empty for the system.
    scope_id: String,
    name: String,
}

impl SkillTarget {
    /// Returns the target for a user, for a project or, if neither is named, for all. Fails if both are
    /// named, or if the name of the skill is not valid.
    pub fn new(name: String, user: Option<String>, project: Option<String>) -> Result<Self, ToolError> {
        // A letter of another alphabet may look like one of these.
        if !name.is_ascii() || !check::is_name(&name, MAX_NAME_BYTES) {
            let why =
                format!("a name has lowercase letters a to z, digits and hyphens, {MAX_NAME_BYTES} at most");
            return Err(ToolError::Invalid(why));
        }
        let (scope, scope_id) = match (project, user) {
            (Some(project), None) => (SkillScope::Project, project),
            (None, Some(user)) => (SkillScope::User, user),
            (None, None) => (SkillScope::System, String::new()),
            (Some(_), Some(_)) => {
                return Err(ToolError::Invalid(
                    "a skill is of a user or of a project, not of both".to_owned(),
                ));
            }
        };
        Ok(Self { scope, scope_id, name })
    }
}

/// Changes skills within a transaction. Every text is scanned before it is stored.
#[derive(Debug)]
pub struct SkillWriter<'w> {
    db: &'w DatabaseExecutor<'w>,
    /// Microseconds since 1970.
    now: i64,
    author: String,
    /// `None` if the author may change the skills of every scope.
    confinement: Option<Confinement>,
}

impl<'w> SkillWriter<'w> {
    /// Returns a writer for an administrator, within the administrator's transaction.
    pub fn of_administrator(db: &'w DatabaseExecutor<'w>, now: i64, author: String) -> Self {
        Self { db, now, author, confinement: None }
    }

    /// Returns a writer for the caller of a tool, who changes only what it acts for.
    pub(super) async fn of(context: &'w Context<'w>) -> Result<Self, ToolError> {
        let confinement = Confinement::of(context).await?;
        Ok(Self { db: &context.db, now: context.now, author: context.author(), confinement })
    }

    /// Returns the target of a new skill. If neither a user nor a project is named, the skill of a confined
    /// caller is for the caller's user.
    pub(super) fn target(
        &self,
        name: String,
        user: Option<String>,
        project: Option<String>,
    ) -> Result<SkillTarget, ToolError> {
        let own = || self.confinement.as_ref().map(|confinement| confinement.user.clone());
        let user = if project.is_none() { user.or_else(own) } else { user };
        SkillTarget::new(name, user, project)
    }

    /// Creates a skill. Fails with a conflict if there is one of this name in the scope.
    pub(super) async fn create(
        &self,
        target: SkillTarget,
        description: String,
        content: String,
    ) -> Result<skill::Model, ToolError> {
        check_texts(&description, &content)?;
        let row = skill::Model {
            id: Uuid::now_v7().to_string(),
            name: target.name,
            scope_type: target.scope.as_str().to_owned(),
            scope_id: target.scope_id,
            description,
            content,
            read_only: false,
            version: 1,
            created_at: self.now,
            updated_at: self.now,
            updated_by: self.author.clone(),
        };
        let insert =
            skill::Entity::insert(skill::ActiveModel::from(row.clone())).on_conflict_do_nothing_on([
                skill::Column::ScopeType,
                skill::Column::ScopeId,
                skill::Column::Name,
            ]);
        if !check::was_inserted(&insert.exec_without_returning(self.db).await?) {
            return Err(exists(&row.name));
        }
        Ok(row)
    }

    /// Changes the texts that are given.
    pub(super) async fn update(
        &self,
        id: &str,
        expected: Option<i64>,
        description: Option<String>,
        content: Option<String>,
    ) -> Result<skill::Model, ToolError> {
        let row = self.lock(id, expected).await?;
        if description.is_none() && content.is_none() {
            return Err(ToolError::Invalid("nothing to change is given".to_owned()));
        }
        self.write_version(row, description, content).await
    }

    /// Creates a skill or changes its texts; without a description, the present one is kept.
    ///
    /// `expected` is the version that the skill must have now: 0 if it must not exist, `None` for any.
    pub async fn put(
        &self,
        target: SkillTarget,
        description: Option<String>,
        content: String,
        expected: Option<i64>,
    ) -> Result<skill::Model, ToolError> {
        let query = skill::Entity::find()
            .filter(skill::Column::ScopeType.eq(target.scope.as_str()))
            .filter(skill::Column::ScopeId.eq(&target.scope_id))
            .filter(skill::Column::Name.eq(&target.name));
        match query.lock_exclusive().one(self.db).await? {
            Some(row) if expected == Some(0) => Err(exists(&row.name)),
            Some(row) => {
                self.check_changeable(&row, expected).await?;
                self.write_version(row, description, Some(content)).await
            }
            None => {
                check::version("the skill", expected, 0)?;
                self.create(target, description.unwrap_or_default(), content).await
            }
        }
    }

    /// Deletes a skill and returns what it was.
    pub async fn delete(&self, id: &str, expected: Option<i64>) -> Result<skill::Model, ToolError> {
        let row = self.lock(id, expected).await?;
        skill::Entity::delete_by_id(&row.id).exec(self.db).await?;
        Ok(row)
    }

    /// Locks a skill until the transaction ends, and checks that it may be changed.
    async fn lock(&self, id: &str, expected: Option<i64>) -> Result<skill::Model, ToolError> {
        let row = skill::Entity::find_by_id(id).lock_exclusive().one(self.db).await?;
        // To a caller that may not read it, there is no such skill.
        let may_read = async |row: &skill::Model| -> Result<bool, ToolError> {
            Ok(row.scope_type == SkillScope::System.as_str() || self.is_own(row).await?)
        };
        let missing = || ToolError::not_found("skill", id);
        let row = row.ok_or_else(missing)?;
        if !may_read(&row).await? {
            return Err(missing());
        }
        self.check_changeable(&row, expected).await?;
        Ok(row)
    }

    /// Fails if a skill is read-only, is outside of what the author acts for, or has another version.
    async fn check_changeable(&self, row: &skill::Model, expected: Option<i64>) -> Result<(), ToolError> {
        if row.read_only || !self.is_own(row).await? {
            return Err(ToolError::ReadOnly(format!("the skill {}", row.name)));
        }
        check::version("the skill", expected, row.version)
    }

    /// Returns whether the skill is within what the author acts for.
    async fn is_own(&self, row: &skill::Model) -> Result<bool, ToolError> {
        let Some(confinement) = &self.confinement else { return Ok(true) };
        Ok(match check::parse_stored("scope of a skill", &row.scope_type)? {
            SkillScope::System => false,
            SkillScope::User => row.scope_id == confinement.user,
            SkillScope::Project => {
                let found = project::Entity::find_by_id(&row.scope_id).one(self.db).await?;
                found.is_some_and(|project| confinement.includes_project(&project))
            }
        })
    }

    /// Writes the next version of a skill; what is not given stays as it is.
    async fn write_version(
        &self,
        row: skill::Model,
        description: Option<String>,
        content: Option<String>,
    ) -> Result<skill::Model, ToolError> {
        let description = description.unwrap_or_else(|| row.description.clone());
        let content = content.unwrap_or_else(|| row.content.clone());
        check_texts(&description, &content)?;
        let version = row.version + 1;
        let mut change = skill::ActiveModel::from(row);
        change.description = Set(description);
        change.content = Set(content);
        change.version = Set(version);
        change.updated_at = Set(self.now);
        change.updated_by = Set(self.author.clone());
        Ok(change.update(self.db).await?)
    }
}

fn exists(name: &str) -> ToolError {
    ToolError::Conflict(format!("there is a skill {name} already"))
}

/// Checks and scans description and content: agents read both.
fn check_texts(description: &str, content: &str) -> Result<(), ToolError> {
    check::non_blank("description", description, MAX_DESCRIPTION_BYTES)?;
    check::non_blank("content", content, MAX_CONTENT_BYTES)?;
    for text in [description, content] {
        if let Some(found) = scan(text) {
            return Err(ToolError::Malicious(found.to_string()));
        }
    }
    Ok(())
}
