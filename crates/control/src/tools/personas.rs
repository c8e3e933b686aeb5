//! `persona.*`: texts that describe how an agent should behave.

use contract::{Page, tool};
use schemars::JsonSchema;
use sea_orm::{EntityTrait, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError,
    queries::{
        lookup::{self, MAX_REFERENCE_BYTES},
        page::PageRequest,
        search,
    },
};
use policy::Scope;

use store::{clock, entity::persona};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct PersonaSummary {
    persona_id: String,
    name: String,
    description: String,
    updated_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Persona {
    #[serde(flatten)]
    summary: PersonaSummary,
    content: String,
}

impl From<persona::Model> for PersonaSummary {
    fn from(row: persona::Model) -> Self {
        Self {
            persona_id: row.id,
            name: row.name,
            description: row.description,
            updated_at: clock::text(row.updated_at),
        }
    }
}

impl From<persona::Model> for Persona {
    fn from(mut row: persona::Model) -> Self {
        let content = std::mem::take(&mut row.content);
        Self { summary: row.into(), content }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only personas with this text in their name or description.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("persona.list": List => Page<PersonaSummary>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List personas";
    const DESCRIPTION: &'static str =
        "Lists the personas by name, without their content; persona.get has that.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<PersonaSummary>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = persona::Entity::find().order_by_asc(persona::Column::Name);
        let columns = [persona::Column::Name, persona::Column::Description];
        if let Some(containing) = search::containing(input.text.as_deref(), &columns)? {
            query = query.filter(containing);
        }
        request.fetch(query, context, PersonaSummary::from).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The id or the name of the persona.
    #[schemars(length(max = MAX_REFERENCE_BYTES))]
    persona_id: String,
}

tool!("persona.get": Get => Persona);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a persona";
    const DESCRIPTION: &'static str = "Gives one persona with its content.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Persona, ToolError> {
        let name = persona::Column::Name;
        let row = lookup::by_id_or_name::<persona::Entity>(
            context,
            "persona",
            "persona_id",
            name,
            input.persona_id,
        )
        .await?;
        Ok(row.into())
    }
}
