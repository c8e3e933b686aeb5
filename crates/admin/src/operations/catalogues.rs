//! Catalogues that agents read and administrators maintain: projects, personas, nodes, models.

use sea_orm::{EntityTrait, QueryOrder, sea_query::OnConflict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use store::{
    clock,
    entity::{model, node, persona, project},
};

use crate::{Actor, Admin, Error, check};

const MAX_TEXT_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Project {
    pub id: String,
    pub name: String,
    pub title: String,
    pub description: String,
    pub user_id: Option<String>,
    pub created_at: String,
    pub updated_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutProject {
    pub name: String,
    pub title: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub user_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Persona {
    pub id: String,
    pub name: String,
    pub description: String,
    pub content: String,
    pub updated_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPersona {
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Node {
    pub id: String,
    pub name: String,
    pub status: String,
    pub capabilities: Value,
    pub seen_at: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutNode {
    pub name: String,
    /// For example online, offline or draining.
    pub status: String,
    #[serde(default)]
    pub capabilities: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Model {
    pub id: String,
    pub name: String,
    pub provider: String,
    pub capabilities: Value,
    pub context_tokens: i64,
    pub updated_at: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutModel {
    pub name: String,
    pub provider: String,
    #[serde(default)]
    pub capabilities: Value,
    pub context_tokens: i64,
}

impl Admin {
    pub async fn list_projects(&self, actor: &Actor) -> Result<Vec<Project>, Error> {
        actor.ensure_admin()?;
        let rows = project::Entity::find().order_by_asc(project::Column::Name);
        Ok(rows.all(self.store.read()).await?.into_iter().map(Project::from).collect())
    }

    pub async fn put_project(&self, actor: &Actor, id: &str, new: PutProject) -> Result<Project, Error> {
        const WHAT: &str = "admin.project.put";
        self.require_admin(actor, WHAT).await?;
        let now = clock::now();
        let row = project::Model {
            id: check::id("id", id)?,
            name: check::line("name", &new.name)?,
            title: check::line("title", &new.title)?,
            description: text("description", &new.description)?,
            user_id: check::optional_id("user_id", new.user_id.as_deref())?,
            created_at: now,
            updated_at: now,
        };
        let open = self.begin(actor, WHAT, &json!({ "id": id, "new": new })).await?;
        use project::Column::{Description, Id, Name, Title, UpdatedAt, UserId};
        project::Entity::insert(project::ActiveModel::from(row))
            .on_conflict(
                OnConflict::column(Id)
                    .update_columns([Name, Title, Description, UserId, UpdatedAt])
                    .to_owned(),
            )
            .exec_without_returning(&*open.write)
            .await?;
        let row = project::Entity::find_by_id(id).one(&*open.write).await?;
        self.commit(open).await?;
        row.map(Project::from).ok_or_else(|| Error::not_found("project", id))
    }

    pub async fn delete_project(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        self.delete::<project::Entity>(actor, "admin.project.delete", "project", id).await
    }

    pub async fn list_personas(&self, actor: &Actor) -> Result<Vec<Persona>, Error> {
        actor.ensure_admin()?;
        let rows = persona::Entity::find().order_by_asc(persona::Column::Name);
        Ok(rows.all(self.store.read()).await?.into_iter().map(Persona::from).collect())
    }

    pub async fn put_persona(&self, actor: &Actor, id: &str, new: PutPersona) -> Result<Persona, Error> {
        const WHAT: &str = "admin.persona.put";
        self.require_admin(actor, WHAT).await?;
        let row = persona::Model {
            id: check::id("id", id)?,
            name: check::line("name", &new.name)?,
            description: text("description", &new.description)?,
            content: text("content", &new.content)?,
            updated_at: clock::now(),
        };
        let open = self.begin(actor, WHAT, &json!({ "id": id, "new": new })).await?;
        use persona::Column::{Content, Description, Id, Name, UpdatedAt};
        persona::Entity::insert(persona::ActiveModel::from(row.clone()))
            .on_conflict(
                OnConflict::column(Id).update_columns([Name, Description, Content, UpdatedAt]).to_owned(),
            )
            .exec_without_returning(&*open.write)
            .await?;
        self.commit(open).await?;
        Ok(row.into())
    }

    pub async fn delete_persona(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        self.delete::<persona::Entity>(actor, "admin.persona.delete", "persona", id).await
    }

    pub async fn list_nodes(&self, actor: &Actor) -> Result<Vec<Node>, Error> {
        actor.ensure_admin()?;
        let rows = node::Entity::find().order_by_asc(node::Column::Name);
        Ok(rows.all(self.store.read()).await?.into_iter().map(Node::from).collect())
    }

    pub async fn put_node(&self, actor: &Actor, id: &str, new: PutNode) -> Result<Node, Error> {
        const WHAT: &str = "admin.node.put";
        self.require_admin(actor, WHAT).await?;
        let row = node::Model {
            id: check::id("id", id)?,
            name: check::line("name", &new.name)?,
            status: check::id("status", &new.status)?,
            capabilities: text("capabilities", &new.capabilities.to_string())?,
            seen_at: clock::now(),
        };
        let open = self.begin(actor, WHAT, &json!({ "id": id, "new": new })).await?;
        use node::Column::{Capabilities, Id, Name, SeenAt, Status};
        node::Entity::insert(node::ActiveModel::from(row.clone()))
            .on_conflict(
                OnConflict::column(Id).update_columns([Name, Status, Capabilities, SeenAt]).to_owned(),
            )
            .exec_without_returning(&*open.write)
            .await?;
        self.commit(open).await?;
        Ok(row.into())
    }

    pub async fn delete_node(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        self.delete::<node::Entity>(actor, "admin.node.delete", "node", id).await
    }

    pub async fn list_models(&self, actor: &Actor) -> Result<Vec<Model>, Error> {
        actor.ensure_admin()?;
        let rows = model::Entity::find().order_by_asc(model::Column::Name);
        Ok(rows.all(self.store.read()).await?.into_iter().map(Model::from).collect())
    }

    pub async fn put_model(&self, actor: &Actor, id: &str, new: PutModel) -> Result<Model, Error> {
        const WHAT: &str = "admin.model.put";
        self.require_admin(actor, WHAT).await?;
        if new.context_tokens < 1 {
            return Err(Error::invalid("context_tokens", "must be at least 1"));
        }
        let row = model::Model {
            id: check::id("id", id)?,
            name: check::line("name", &new.name)?,
            provider: check::line("provider", &new.provider)?,
            capabilities: text("capabilities", &new.capabilities.to_string())?,
            context_tokens: new.context_tokens,
            updated_at: clock::now(),
        };
        let open = self.begin(actor, WHAT, &json!({ "id": id, "new": new })).await?;
        use model::Column::{Capabilities, ContextTokens, Id, Name, Provider, UpdatedAt};
        model::Entity::insert(model::ActiveModel::from(row.clone()))
            .on_conflict(
                OnConflict::column(Id)
                    .update_columns([Name, Provider, Capabilities, ContextTokens, UpdatedAt])
                    .to_owned(),
            )
            .exec_without_returning(&*open.write)
            .await?;
        self.commit(open).await?;
        Ok(row.into())
    }

    pub async fn delete_model(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        self.delete::<model::Entity>(actor, "admin.model.delete", "model", id).await
    }

    async fn delete<E>(
        &self,
        actor: &Actor,
        what: &'static str,
        kind: &'static str,
        id: &str,
    ) -> Result<(), Error>
    where
        E: EntityTrait,
        E::PrimaryKey: sea_orm::PrimaryKeyTrait<ValueType = String>,
    {
        self.require_admin(actor, what).await?;
        let open = self.begin(actor, what, &json!({ "id": id })).await?;
        let deleted = E::delete_by_id(id.to_owned()).exec(&*open.write).await?;
        if deleted.rows_affected == 0 {
            return Err(Error::not_found(kind, id));
        }
        self.commit(open).await
    }
}

fn text(field: &'static str, text: &str) -> Result<String, Error> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::invalid(field, format!("must have at most {MAX_TEXT_BYTES} bytes")));
    }
    Ok(text.to_owned())
}

/// Parses stored JSON; text that is not valid JSON is shown as a string.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

impl From<project::Model> for Project {
    fn from(row: project::Model) -> Self {
        let (created_at, updated_at) = (clock::text(row.created_at), clock::text(row.updated_at));
        let project::Model { id, name, title, description, user_id, .. } = row;
        Self { id, name, title, description, user_id, created_at, updated_at }
    }
}

impl From<persona::Model> for Persona {
    fn from(row: persona::Model) -> Self {
        let persona::Model { id, name, description, content, updated_at } = row;
        Self { id, name, description, content, updated_at: clock::text(updated_at) }
    }
}

impl From<node::Model> for Node {
    fn from(row: node::Model) -> Self {
        let node::Model { id, name, status, capabilities, seen_at } = row;
        Self { id, name, status, capabilities: value(&capabilities), seen_at: clock::text(seen_at) }
    }
}

impl From<model::Model> for Model {
    fn from(row: model::Model) -> Self {
        let model::Model { id, name, provider, capabilities, context_tokens, updated_at } = row;
        let (capabilities, updated_at) = (value(&capabilities), clock::text(updated_at));
        Self { id, name, provider, capabilities, context_tokens, updated_at }
    }
}
