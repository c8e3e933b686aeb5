//! `node.*`: the machines that run jobs.

use contract::{Page, tool};
use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltInTool, Context, Does, Entry, ToolError, check,
    lookup::{self, MAX_REFERENCE_BYTES},
    page::PageRequest,
};
use policy::Scope;

use store::{clock, entity::node};

const MAX_STATUS_BYTES: usize = 64;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Node {
    node_id: String,
    name: String,
    status: String,
    capabilities: Value,
    /// When it last gave a sign of life.
    seen_at: String,
}

impl From<node::Model> for Node {
    fn from(row: node::Model) -> Self {
        Self {
            node_id: row.id,
            name: row.name,
            status: row.status,
            capabilities: serde_json::from_str(&row.capabilities).unwrap_or_default(),
            seen_at: clock::text(row.seen_at),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only nodes in this status.
    #[schemars(length(max = MAX_STATUS_BYTES))]
    status: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("node.list": List => Page<Node>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List nodes";
    const DESCRIPTION: &'static str = "Lists the nodes that run jobs, by name, with status and capabilities.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Node>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = node::Entity::find().order_by_asc(node::Column::Name);
        if let Some(status) = &input.status {
            check::text("status", status, MAX_STATUS_BYTES)?;
            query = query.filter(node::Column::Status.eq(status));
        }
        request.fetch(query, context, Node::from).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The id or the name of the node.
    #[schemars(length(max = MAX_REFERENCE_BYTES))]
    node_id: String,
}

tool!("node.get": Get => Node);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a node";
    const DESCRIPTION: &'static str =
        "Gives one node: its status, what it can do, and when it was last seen.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Node, ToolError> {
        let name = node::Column::Name;
        let row =
            lookup::by_id_or_name::<node::Entity>(context, "node", "node_id", name, input.node_id).await?;
        Ok(row.into())
    }
}
