//! `persona.*`: the ways for an agent to be.

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};

use super::{
    Context, Does, Entry, OwnTool, ToolError, check,
    page::{Page, Piece},
    search,
};
use crate::{clock, policy::Scope, store::entity::persona};

const REFERENCE: usize = 128;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    persona_id: String,
    name: String,
    description: String,
    updated_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Persona {
    #[serde(flatten)]
    listed: Listed,
    content: String,
}

impl From<persona::Model> for Listed {
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
        Self { listed: row.into(), content }
    }
}

struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ListInput {
    /// Only personas with this text in their name or description.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

impl OwnTool for List {
    const NAME: &'static str = "persona.list";
    const TITLE: &'static str = "List personas";
    const DESCRIPTION: &'static str =
        "Lists the personas by name, without their content; persona.get has that.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = ListInput;
    type Output = Piece<Listed>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Piece<Listed>, ToolError> {
        let page = Page::of(input.limit, input.cursor.as_deref())?;
        let mut query = persona::Entity::find().order_by_asc(persona::Column::Name);
        let columns = [persona::Column::Name, persona::Column::Description];
        if let Some(containing) = search::containing(input.text.as_deref(), &columns)? {
            query = query.filter(containing);
        }
        let found = query.offset(page.offset).limit(page.fetch()).all(&context.db).await?;
        Ok(page.cut(found.into_iter().map(Listed::from).collect()))
    }
}

struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetInput {
    /// The id or the name of the persona.
    #[schemars(length(max = REFERENCE))]
    persona_id: String,
}

impl OwnTool for Get {
    const NAME: &'static str = "persona.get";
    const TITLE: &'static str = "Get a persona";
    const DESCRIPTION: &'static str = "Gives one persona with its content.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = GetInput;
    type Output = Persona;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Persona, ToolError> {
        check::words("persona_id", &input.persona_id, REFERENCE)?;
        let by_id = persona::Entity::find_by_id(&input.persona_id).one(&context.db).await?;
        let found = match by_id {
            Some(found) => Some(found),
            None => {
                let named = persona::Entity::find().filter(persona::Column::Name.eq(&input.persona_id));
                named.one(&context.db).await?
            }
        };
        found.map(Persona::from).ok_or_else(|| ToolError::not_found("persona", input.persona_id))
    }
}
