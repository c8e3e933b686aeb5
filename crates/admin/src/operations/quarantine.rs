//! Quarantine: upstream tools that need approval, because they are new, changed, rejected, or share a name.

use std::collections::BTreeMap;

use api::{Difference, QuarantineReason, QuarantinedTool, ToolState};
use rmcp::model::Tool as McpTool;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde_json::{Value, json};
use similar::TextDiff;

use super::tool_state;
use registry::{
    catalogue::{self, Backend},
    sanitize::{self, escape_hidden},
    upstreams::{REASON_NEW, unservable_reason},
};
use store::{
    clock,
    entity::{upstream, upstream_tool},
};

use crate::{Actor, Admin, Error, change::Change};

/// Unchanged lines around each change in a diff.
const DIFF_CONTEXT_LINES: usize = 4;

impl Admin {
    /// Lists tools that need approval, by namespace and name. Users see only the tools of servers that they
    /// own.
    pub(crate) async fn list_quarantine(&self, actor: &Actor) -> Result<Vec<QuarantinedTool>, Error> {
        let servers = self.load_servers().await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let conflicts = self.load_name_conflicts(&rows).await?;
        let quarantined = rows.iter().filter(|row| tool_state(&row.state) == ToolState::Quarantined);
        let mut found: Vec<QuarantinedTool> = quarantined
            .filter_map(|row| {
                let owner = servers.get(&row.namespace)?.owner.clone();
                actor.may_manage(owner.as_deref()).then(|| describe(row, owner, &conflicts))
            })
            .collect();
        found.sort_by(|a, b| (&a.namespace, &a.remote).cmp(&(&b.namespace, &b.remote)));
        Ok(found)
    }

    pub(crate) async fn diff_tool(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
    ) -> Result<Difference, Error> {
        let (server, row) = self.load_upstream_tool(actor, namespace, remote).await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let conflicts = self.load_name_conflicts(&rows).await?;
        Ok(Difference { lines: diff_lines(&row), tool: describe(&row, server.owner, &conflicts) })
    }

    /// Pins the version that the server offers and serves it. `expected_hash` is the hash of the reviewed
    /// version.
    ///
    /// Fails with [`Error::Conflict`] if the server offers another version by now, or if the tool cannot be
    /// served. An approved tool of another server with the same name goes to quarantine.
    pub(crate) async fn approve_tool(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
        expected_hash: &str,
    ) -> Result<(), Error> {
        const WHAT: &str = "admin.tool.approve";
        let (_, row) = self.load_upstream_tool(actor, namespace, remote).await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let collides = self.load_name_conflicts(&rows).await?.contains(&row);
        if collides && !actor.is_admin() {
            let why = "another tool has this name; only an administrator may decide which one is served";
            return Err(self.refuse(actor, WHAT, why).await);
        }
        if let Some(why) = unservable_reason(&row.name, row.offered.as_deref().unwrap_or_default()) {
            return Err(Error::Conflict(format!("`{}` cannot be served: {why}", row.name)));
        }
        if self.query_is_built_in(&row.name).await? {
            let why = format!("`{}` is a built-in tool and cannot be replaced", row.name);
            return Err(Error::Conflict(why));
        }
        let about = json!({ "namespace": namespace, "remote": remote, "hash": expected_hash });
        let open = self.begin(actor, WHAT, &about).await?;
        displace(&open, &row).await?;
        if !pin(&open, actor, namespace, remote, expected_hash).await? {
            let why = "the server offers another version by now; review the difference again";
            return Err(Error::Conflict(why.to_owned()));
        }
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await
    }

    /// Quarantines a tool until it is approved, or until its server offers another version.
    pub(crate) async fn reject_tool(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
    ) -> Result<(), Error> {
        self.load_upstream_tool(actor, namespace, remote).await?;
        let about = json!({ "namespace": namespace, "remote": remote });
        let open = self.begin(actor, "admin.tool.reject", &about).await?;
        upstream_tool::Entity::update_many()
            .col_expr(upstream_tool::Column::State, Expr::value(upstream_tool::QUARANTINED))
            .col_expr(
                upstream_tool::Column::Reason,
                Expr::value(format!("{REJECTED_PREFIX}{}", actor.author())),
            )
            .col_expr(upstream_tool::Column::DecidedBy, Expr::value(actor.author()))
            .filter(upstream_tool::Column::Namespace.eq(namespace))
            .filter(upstream_tool::Column::Remote.eq(remote))
            .exec(&*open.write)
            .await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await
    }

    /// Approves the new tools of a server whose names are free, and returns how many.
    pub(super) async fn approve_new_tools(&self, actor: &Actor, namespace: &str) -> Result<usize, Error> {
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let conflicts = self.load_name_conflicts(&rows).await?;
        let new = rows.iter().filter(|row| {
            row.namespace == namespace
                && row.reason == REASON_NEW
                && row.pinned.is_none()
                && row.decided_by.is_none()
                && !conflicts.contains(row)
        });
        let mut approved = 0;
        let open = self.begin(actor, "admin.upstream.trust", &json!({ "namespace": namespace })).await?;
        for row in new {
            if let Some(hash) = &row.offered_hash
                && pin(&open, actor, namespace, &row.remote, hash).await?
            {
                approved += 1;
            }
        }
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        Ok(approved)
    }

    async fn load_upstream_tool(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
    ) -> Result<(upstream::Model, upstream_tool::Model), Error> {
        let server = self.load_server(actor, namespace).await?;
        let key = (namespace.to_owned(), remote.to_owned());
        let row = upstream_tool::Entity::find_by_id(key).one(self.store.read()).await?;
        Ok((server, row.ok_or_else(|| Error::not_found("tool", format!("{namespace}/{remote}")))?))
    }

    async fn query_is_built_in(&self, name: &str) -> Result<bool, Error> {
        let catalogue = self.catalogue.latest(&self.store).await?;
        Ok(catalogue.get(name).is_some_and(|served| matches!(served.backend, Backend::BuiltIn(_))))
    }

    /// Returns the names that more than one tool has, built-in tools included.
    async fn load_name_conflicts(&self, rows: &[upstream_tool::Model]) -> Result<NameConflicts, Error> {
        let catalogue = self.catalogue.latest(&self.store).await?;
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let own = catalogue.all().filter(|served| matches!(served.backend, Backend::BuiltIn(_)));
        let own = own.map(|served| served.policy.name.clone());
        let offered = rows.iter().filter(|row| tool_state(&row.state) != ToolState::Gone);
        for name in own.chain(offered.map(|row| row.name.clone())) {
            *names.entry(name).or_default() += 1;
        }
        names.retain(|_, count| *count > 1);
        Ok(NameConflicts(names))
    }
}

const REJECTED_PREFIX: &str = "rejected by ";

/// Names that more than one tool has, with their count.
struct NameConflicts(BTreeMap<String, usize>);

impl NameConflicts {
    fn contains(&self, row: &upstream_tool::Model) -> bool {
        self.0.contains_key(&row.name)
    }
}

fn describe(row: &upstream_tool::Model, owner: Option<String>, conflicts: &NameConflicts) -> QuarantinedTool {
    let why = if row.reason.starts_with(REJECTED_PREFIX) {
        QuarantineReason::Rejected
    } else if conflicts.contains(row) {
        QuarantineReason::Collision
    } else if row.pinned.is_some() {
        QuarantineReason::Changed
    } else {
        QuarantineReason::New
    };
    let text = row.offered.as_ref().or(row.pinned.as_ref());
    let shown = text.and_then(|text| serde_json::from_str::<McpTool>(text).ok());
    let shown = shown.map(|shown| sanitize::tool(shown, &row.name));
    let description = shown.as_ref().and_then(|shown| shown.description.as_deref()).unwrap_or_default();
    QuarantinedTool {
        namespace: row.namespace.clone(),
        remote: row.remote.clone(),
        name: row.name.clone(),
        owner,
        why,
        reason: row.reason.clone(),
        description: description.to_owned(),
        title: shown.and_then(|shown| shown.title),
        pinned_hash: row.pinned_hash.clone(),
        offered_hash: row.offered_hash.clone(),
        decided_by: row.decided_by.clone(),
        seen_at: clock::text(row.seen_at),
    }
}

/// Quarantines the approved tool of another server that has the same name: only one tool is served under a
/// name.
async fn displace(open: &Change, row: &upstream_tool::Model) -> Result<(), Error> {
    upstream_tool::Entity::update_many()
        .col_expr(upstream_tool::Column::State, Expr::value(upstream_tool::QUARANTINED))
        .col_expr(
            upstream_tool::Column::Reason,
            Expr::value(format!("its name was given to the tool of `{}`", row.namespace)),
        )
        .filter(upstream_tool::Column::Name.eq(&row.name))
        .filter(upstream_tool::Column::State.eq(upstream_tool::APPROVED))
        .filter(upstream_tool::Column::Namespace.ne(&row.namespace))
        .exec(&*open.write)
        .await?;
    Ok(())
}

/// Approves a tool if the server still offers the reviewed version; returns whether it does.
async fn pin(
    open: &Change,
    actor: &Actor,
    namespace: &str,
    remote: &str,
    expected_hash: &str,
) -> Result<bool, Error> {
    let pinned = upstream_tool::Entity::update_many()
        .col_expr(upstream_tool::Column::Pinned, Expr::col(upstream_tool::Column::Offered))
        .col_expr(upstream_tool::Column::PinnedHash, Expr::col(upstream_tool::Column::OfferedHash))
        .col_expr(upstream_tool::Column::State, Expr::value(upstream_tool::APPROVED))
        .col_expr(upstream_tool::Column::Reason, Expr::value(""))
        .col_expr(upstream_tool::Column::DecidedBy, Expr::value(actor.author()))
        .filter(upstream_tool::Column::Namespace.eq(namespace))
        .filter(upstream_tool::Column::Remote.eq(remote))
        .filter(upstream_tool::Column::OfferedHash.eq(expected_hash))
        .filter(upstream_tool::Column::Offered.is_not_null())
        .filter(upstream_tool::Column::State.ne(upstream_tool::GONE))
        .exec(&*open.write)
        .await?;
    Ok(pinned.rows_affected > 0)
}

fn diff_lines(row: &upstream_tool::Model) -> Vec<String> {
    let (before, after) = (pretty(row.pinned.as_deref()), pretty(row.offered.as_deref()));
    let diff = TextDiff::from_lines(&before, &after);
    let mut unified = diff.unified_diff();
    let text = unified.context_radius(DIFF_CONTEXT_LINES).header("approved", "offered").to_string();
    text.lines().map(str::to_owned).collect()
}

/// Formats JSON with sorted members, so that only real changes differ.
fn pretty(text: Option<&str>) -> String {
    let Some(text) = text else { return String::new() };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return escape_hidden(text) };
    let mut pretty = escape_hidden(&format!("{value:#}"));
    pretty.push('\n');
    pretty
}
