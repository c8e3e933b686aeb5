//! `sandbox.allowed_images.*`: the images that sandboxes may run.

mod reference;

use contract::{Page, tool};
use reference::MAX_REFERENCE_BYTES;
pub(crate) use reference::check as check_reference;
use schemars::JsonSchema;
use sea_orm::{EntityTrait, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError,
    arguments::check,
    confinement::require_unconfined,
    queries::{page::PageRequest, search},
};
use policy::{Scope, Switch};

use store::{clock, entity::allowed_image};

const MAX_NOTE_BYTES: usize = 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Add>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    image: String,
    note: String,
    created_at: String,
    created_by: String,
}

impl From<allowed_image::Model> for Image {
    fn from(row: allowed_image::Model) -> Self {
        Self {
            image: row.image,
            note: row.note,
            created_at: clock::text(row.created_at),
            created_by: row.created_by,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only images with this text in their reference or note.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("sandbox.allowed_images.list": List => Page<Image>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List allowed images";
    const DESCRIPTION: &'static str = "Lists the container images that sandboxes may run. Offered only where \
        the system settings permit agents to add images.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const GATE: Option<Switch> = Some(Switch::AgentsMayAddImages);

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Image>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = allowed_image::Entity::find().order_by_asc(allowed_image::Column::Image);
        let columns = [allowed_image::Column::Image, allowed_image::Column::Note];
        if let Some(containing) = search::containing(input.text.as_deref(), &columns)? {
            query = query.filter(containing);
        }
        request.fetch(query, context, Image::from).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// `registry/name:tag@digest`; registry, tag and digest may be left out. It is kept as it is written.
    #[schemars(length(max = MAX_REFERENCE_BYTES))]
    image: String,
    /// Why it is needed.
    #[schemars(length(max = MAX_NOTE_BYTES))]
    note: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AddOutput {
    image: String,
    /// False when it was allowed before.
    added: bool,
}

tool!("sandbox.allowed_images.add": Add => AddOutput);

impl BuiltInTool for Add {
    const TITLE: &'static str = "Allow an image";
    const DESCRIPTION: &'static str = "Allows sandboxes to run a container image. Offered only where the \
        system settings permit agents to add images.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const GATE: Option<Switch> = Some(Switch::AgentsMayAddImages);

    async fn run(context: &Context<'_>, input: Self) -> Result<AddOutput, ToolError> {
        require_unconfined(context, "the list of allowed images")?;
        reference::check(&input.image).map_err(|why| ToolError::Invalid(why.to_owned()))?;
        let note = input.note.unwrap_or_default();
        check::text("note", &note, MAX_NOTE_BYTES)?;
        let row = allowed_image::Model {
            image: input.image.clone(),
            note,
            created_at: context.now,
            created_by: context.author(),
        };
        let insert = allowed_image::Entity::insert(allowed_image::ActiveModel::from(row))
            .on_conflict_do_nothing_on([allowed_image::Column::Image]);
        let added = check::was_inserted(&insert.exec_without_returning(&context.db).await?);
        Ok(AddOutput { image: input.image, added })
    }
}
