//! `model.*`: the models that agents may be routed to.

use contract::{Page, tool};
use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError,
    arguments::check,
    queries::{
        lookup::{self, MAX_REFERENCE_BYTES},
        page::PageRequest,
    },
};
use policy::Scope;

use store::{clock, entity::model};

const MAX_PROVIDER_BYTES: usize = 128;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Model {
    model_id: String,
    name: String,
    provider: String,
    capabilities: Value,
    /// How much it can take in at once.
    context_tokens: i64,
    updated_at: String,
}

impl From<model::Model> for Model {
    fn from(row: model::Model) -> Self {
        Self {
            model_id: row.id,
            name: row.name,
            provider: row.provider,
            capabilities: serde_json::from_str(&row.capabilities).unwrap_or_default(),
            context_tokens: row.context_tokens,
            updated_at: clock::text(row.updated_at),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only models of this provider.
    #[schemars(length(max = MAX_PROVIDER_BYTES))]
    provider: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("model.list": List => Page<Model>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List models";
    const DESCRIPTION: &'static str =
        "Lists the models that agents may be routed to, by name, with provider and capabilities.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Model>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = model::Entity::find().order_by_asc(model::Column::Name);
        if let Some(provider) = &input.provider {
            check::text("provider", provider, MAX_PROVIDER_BYTES)?;
            query = query.filter(model::Column::Provider.eq(provider));
        }
        request.fetch(query, context, Model::from).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The id or the name of the model.
    #[schemars(length(max = MAX_REFERENCE_BYTES))]
    model_id: String,
}

tool!("model.get": Get => Model);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a model";
    const DESCRIPTION: &'static str =
        "Gives one model: its provider, what it can do, and how much it takes in.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Model, ToolError> {
        let name = model::Column::Name;
        let row = lookup::by_id_or_name::<model::Entity>(context, "model", "model_id", name, input.model_id)
            .await?;
        Ok(row.into())
    }
}
