//! Catalogues that agents read and administrators maintain: projects, personas, models.

use api::{Model, Persona, Project, PutModel, PutPersona, PutProject};
use sea_orm::{
    EntityTrait, IdenStatic, IntoActiveModel, Iterable, PrimaryKeyTrait, QueryOrder, sea_query::OnConflict,
};
use serde::Serialize;
use serde_json::{Value, json};

use store::{
    clock,
    entity::{model, persona, project},
};

use super::stored_json;
use crate::{Actor, Admin, Error, check};

const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A catalogue: its table, the bodies of its entries, and its names in errors and audit rows.
pub(crate) trait Catalogue:
    EntityTrait<
        PrimaryKey: PrimaryKeyTrait<ValueType = String>,
        Model: IntoActiveModel<<Self as EntityTrait>::ActiveModel>,
    >
{
    /// The name of one entry.
    const ENTRY: &'static str;
    /// The operations in audit rows.
    const PUT: &'static str;
    const DELETE: &'static str;
    const ID: Self::Column;
    const NAME: Self::Column;
    /// Columns that keep their value when an entry is replaced.
    const KEPT: &'static [Self::Column] = &[];
    type Body: Serialize;
    type New: Serialize;

    /// Validates a new entry and returns its row.
    fn row(id: String, new: &Self::New) -> Result<Self::Model, Error>;

    fn body(row: Self::Model) -> Self::Body;
}

impl Admin {
    /// Lists the entries of a catalogue by name.
    pub(crate) async fn list_entries<C: Catalogue>(&self, actor: &Actor) -> Result<Vec<C::Body>, Error> {
        actor.ensure_admin()?;
        let rows = C::find().order_by_asc(C::NAME).all(self.store.read()).await?;
        Ok(rows.into_iter().map(C::body).collect())
    }

    /// Creates or replaces an entry of a catalogue.
    pub(crate) async fn put_entry<C: Catalogue>(
        &self,
        actor: &Actor,
        id: &str,
        new: C::New,
    ) -> Result<C::Body, Error> {
        self.require_admin(actor, C::PUT).await?;
        let row = C::row(check::id("id", id)?, &new)?;
        let open = self.begin(actor, C::PUT, &json!({ "id": id, "new": new })).await?;
        let kept = |column: &C::Column| C::KEPT.iter().any(|kept| kept.as_str() == column.as_str());
        let replaced = C::Column::iter().filter(|column| column.as_str() != C::ID.as_str() && !kept(column));
        let row = C::insert(row.into_active_model())
            .on_conflict(OnConflict::column(C::ID).update_columns(replaced).to_owned())
            .exec_with_returning(&*open.write)
            .await?;
        self.commit(open).await?;
        Ok(C::body(row))
    }

    pub(crate) async fn delete_entry<C: Catalogue>(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        self.require_admin(actor, C::DELETE).await?;
        let open = self.begin(actor, C::DELETE, &json!({ "id": id })).await?;
        let deleted = C::delete_by_id(id.to_owned()).exec(&*open.write).await?;
        if deleted.rows_affected == 0 {
            return Err(Error::not_found(C::ENTRY, id));
        }
        self.commit(open).await
    }
}

impl Catalogue for project::Entity {
    const ENTRY: &'static str = "project";
    const PUT: &'static str = "admin.project.put";
    const DELETE: &'static str = "admin.project.delete";
    const ID: project::Column = project::Column::Id;
    const NAME: project::Column = project::Column::Name;
    const KEPT: &'static [project::Column] = &[project::Column::CreatedAt];
    type Body = Project;
    type New = PutProject;

    fn row(id: String, new: &PutProject) -> Result<project::Model, Error> {
        let now = clock::now();
        Ok(project::Model {
            id,
            name: check::line("name", &new.name)?,
            title: check::line("title", &new.title)?,
            description: text("description", &new.description)?,
            user_id: check::optional_id("user_id", new.user_id.as_deref())?,
            created_at: now,
            updated_at: now,
        })
    }

    fn body(row: project::Model) -> Project {
        let (created_at, updated_at) = (clock::text(row.created_at), clock::text(row.updated_at));
        let project::Model { id, name, title, description, user_id, .. } = row;
        Project { id, name, title, description, user_id, created_at, updated_at }
    }
}

impl Catalogue for persona::Entity {
    const ENTRY: &'static str = "persona";
    const PUT: &'static str = "admin.persona.put";
    const DELETE: &'static str = "admin.persona.delete";
    const ID: persona::Column = persona::Column::Id;
    const NAME: persona::Column = persona::Column::Name;
    type Body = Persona;
    type New = PutPersona;

    fn row(id: String, new: &PutPersona) -> Result<persona::Model, Error> {
        Ok(persona::Model {
            id,
            name: check::line("name", &new.name)?,
            description: text("description", &new.description)?,
            content: text("content", &new.content)?,
            updated_at: clock::now(),
        })
    }

    fn body(row: persona::Model) -> Persona {
        let persona::Model { id, name, description, content, updated_at } = row;
        Persona { id, name, description, content, updated_at: clock::text(updated_at) }
    }
}

impl Catalogue for model::Entity {
    const ENTRY: &'static str = "model";
    const PUT: &'static str = "admin.model.put";
    const DELETE: &'static str = "admin.model.delete";
    const ID: model::Column = model::Column::Id;
    const NAME: model::Column = model::Column::Name;
    type Body = Model;
    type New = PutModel;

    fn row(id: String, new: &PutModel) -> Result<model::Model, Error> {
        if new.context_tokens < 1 {
            return Err(Error::invalid("context_tokens", "must be at least 1"));
        }
        Ok(model::Model {
            id,
            name: check::line("name", &new.name)?,
            provider: check::line("provider", &new.provider)?,
            capabilities: json_text("capabilities", &new.capabilities)?,
            context_tokens: new.context_tokens,
            updated_at: clock::now(),
        })
    }

    fn body(row: model::Model) -> Model {
        let model::Model { id, name, provider, capabilities, context_tokens, updated_at } = row;
        let (capabilities, updated_at) = (stored_json(capabilities), clock::text(updated_at));
        Model { id, name, provider, capabilities, context_tokens, updated_at }
    }
}

fn text(field: &'static str, text: &str) -> Result<String, Error> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::invalid(field, format!("must have at most {MAX_TEXT_BYTES} bytes")));
    }
    Ok(text.to_owned())
}

fn json_text(field: &'static str, value: &Value) -> Result<String, Error> {
    text(field, &value.to_string())
}
