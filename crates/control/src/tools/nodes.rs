//! `node.*`: the machines that run jobs, as they report themselves.

mod book;
mod presence;

use std::collections::BTreeSet;

pub use book::NodeBook;
use contract::{
    Page,
    node::{Get, List, Node},
};
use policy::Scope;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use store::entity::{job, node};

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError,
    confinement::Confinement,
    known_node::KnownNode,
    queries::{lookup, page::PageRequest},
};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List nodes";
    const DESCRIPTION: &'static str = "Lists the nodes that run jobs, by id: whether each takes jobs, its \
        pool and labels, what isolates jobs there, and what it runs.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Node>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = node::Entity::find().order_by_asc(node::Column::Id);
        if let Some(pool) = &input.pool {
            query = query.filter(node::Column::Pool.eq(pool.as_str()));
        }
        let rows = query.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        let mut nodes = Vec::with_capacity(rows.len());
        for row in rows {
            let mut node = describe(context, row).await?;
            // The attempts to escape are many; node.get has them.
            node.engines.iter_mut().for_each(|engine| engine.attempts.clear());
            nodes.push(node);
        }
        Ok(request.build_page(nodes))
    }
}

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a node";
    const DESCRIPTION: &'static str = "Gives one node: whether it takes jobs and why not, its engines with \
        the attempts to escape from them, its slots, and the jobs that it runs.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Node, ToolError> {
        let name = node::Column::Name;
        let row =
            lookup::by_id_or_name::<node::Entity>(context, "node", "node_id", name, input.node_id).await?;
        describe(context, row).await
    }
}

/// Describes a node. A caller that acts for a user sees the ids of the jobs of its tasks alone.
async fn describe(context: &Context<'_>, row: node::Model) -> Result<Node, ToolError> {
    let mut node = KnownNode::new(row).describe(&context.db, context.now).await?;
    if let Some(confinement) = Confinement::to_tasks(context) {
        let own = job::Entity::find().select_only().column(job::Column::Id);
        let own = own.filter(job::Column::Id.is_in(&node.running)).filter(confinement.jobs());
        let own: BTreeSet<String> = own.into_tuple().all(&context.db).await?.into_iter().collect();
        node.running.retain(|id| own.contains(id));
    }
    Ok(node)
}
