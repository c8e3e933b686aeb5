use std::collections::BTreeMap;

use rmcp::model::Tool as Shown;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::TextDiff;
use utoipa::ToSchema;

use super::{ToolState, tools::state};
use crate::{
    admin::{Actor, Admin, Error, change::Change},
    catalogue::{self, Runs},
    clock, sanitize,
    store::entity::{upstream, upstream_tool},
    upstreams::{NEW, unservable},
};

/// Lines of a difference that stay the same, around those that do not.
const AROUND: usize = 4;

/// Why a tool waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nobody looked at it yet.
    New,
    /// It is not what was approved any more.
    Changed,
    /// Another tool goes by its name.
    Collision,
    /// Somebody looked at it and said no.
    Rejected,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Waiting {
    pub namespace: String,
    /// Its name over there.
    pub remote: String,
    /// The name that it would have here.
    pub name: String,
    pub owner: Option<String>,
    pub why: Why,
    pub reason: String,
    pub title: Option<String>,
    pub description: String,
    /// Of what was approved before.
    pub pinned_hash: Option<String>,
    /// Of what the server offers now. Approving names it.
    pub offered_hash: Option<String>,
    pub decided_by: Option<String>,
    pub seen_at: String,
}

/// What changed between the approved copy of a tool and what its server offers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Difference {
    #[serde(flatten)]
    pub tool: Waiting,
    /// A unified diff of the two as JSON, line by line. Characters that nobody sees are written as `\u{…}`.
    pub lines: Vec<String>,
}

impl Admin {
    /// Users see the tools of servers that they installed.
    pub async fn list_quarantine(&self, actor: &Actor) -> Result<Vec<Waiting>, Error> {
        let servers = self.servers().await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let taken = self.taken(&rows).await?;
        let waiting = rows.iter().filter(|row| state(&row.state) == ToolState::Quarantined);
        let mut found: Vec<Waiting> = waiting
            .filter_map(|row| {
                let owner = servers.get(&row.namespace)?.owner.clone();
                actor.may_manage(owner.as_deref()).then(|| told(row, owner, &taken))
            })
            .collect();
        found.sort_by(|a, b| (&a.namespace, &a.remote).cmp(&(&b.namespace, &b.remote)));
        Ok(found)
    }

    pub async fn diff_tool(&self, actor: &Actor, namespace: &str, remote: &str) -> Result<Difference, Error> {
        let (server, row) = self.tool_behind(actor, namespace, remote).await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let taken = self.taken(&rows).await?;
        Ok(Difference { lines: lines(&row), tool: told(&row, server.owner, &taken) })
    }

    /// From now on what the server offers is what is served. `expected_hash` is of what was looked at: if the server
    /// offers something else by now, nothing is approved.
    pub async fn approve_tool(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
        expected_hash: &str,
    ) -> Result<(), Error> {
        const WHAT: &str = "admin.tool.approve";
        let (_, row) = self.tool_behind(actor, namespace, remote).await?;
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let collides = self.taken(&rows).await?.contains(&row);
        if collides && !actor.is_admin() {
            let why = "another tool goes by this name; only an administrator may decide which one has it";
            return Err(self.refuse(actor, WHAT, why).await);
        }
        if let Some(why) = unservable(&row.name, row.offered.as_deref().unwrap_or_default()) {
            return Err(Error::Conflict(format!("`{}` cannot be served: {why}", row.name)));
        }
        if self.own_tool(&row.name).await? {
            let why = format!("`{}` is a tool of the gateway itself and cannot be replaced", row.name);
            return Err(Error::Conflict(why));
        }
        let about = json!({ "namespace": namespace, "remote": remote, "hash": expected_hash });
        let open = self.begin(actor, WHAT, &about).await?;
        displace(&open, &row).await?;
        if !pin(&open, actor, namespace, remote, expected_hash).await? {
            let why = "the server offers something else by now; look at the difference again";
            return Err(Error::Conflict(why.to_owned()));
        }
        catalogue::touch(&open.write).await?;
        self.commit(open).await
    }

    /// It stays out, or is taken out, until somebody approves it or its server offers something else.
    pub async fn reject_tool(&self, actor: &Actor, namespace: &str, remote: &str) -> Result<(), Error> {
        self.tool_behind(actor, namespace, remote).await?;
        let about = json!({ "namespace": namespace, "remote": remote });
        let open = self.begin(actor, "admin.tool.reject", &about).await?;
        upstream_tool::Entity::update_many()
            .col_expr(upstream_tool::Column::State, Expr::value(upstream_tool::QUARANTINED))
            .col_expr(upstream_tool::Column::Reason, Expr::value(format!("{REJECTED}{}", actor.author())))
            .col_expr(upstream_tool::Column::DecidedBy, Expr::value(actor.author()))
            .filter(upstream_tool::Column::Namespace.eq(namespace))
            .filter(upstream_tool::Column::Remote.eq(remote))
            .exec(&*open.write)
            .await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await
    }

    /// Approves what is new at a server and in nobody's way. Tells how many.
    pub(super) async fn trust(&self, actor: &Actor, namespace: &str) -> Result<usize, Error> {
        let rows = upstream_tool::Entity::find().all(self.store.read()).await?;
        let taken = self.taken(&rows).await?;
        let new = rows.iter().filter(|row| {
            row.namespace == namespace
                && row.reason == NEW
                && row.pinned.is_none()
                && row.decided_by.is_none()
                && !taken.contains(row)
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
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        Ok(approved)
    }

    async fn tool_behind(
        &self,
        actor: &Actor,
        namespace: &str,
        remote: &str,
    ) -> Result<(upstream::Model, upstream_tool::Model), Error> {
        let server = self.server(actor, namespace).await?;
        let key = (namespace.to_owned(), remote.to_owned());
        let row = upstream_tool::Entity::find_by_id(key).one(self.store.read()).await?;
        Ok((server, row.ok_or_else(|| Error::not_found("tool", format!("{namespace}/{remote}")))?))
    }

    async fn own_tool(&self, name: &str) -> Result<bool, Error> {
        let catalogue = self.calls.shelf.fresh(&self.store).await?;
        Ok(catalogue.get(name).is_some_and(|served| matches!(served.runs, Runs::Own(_))))
    }

    /// Tools whose name another has, too.
    async fn taken(&self, rows: &[upstream_tool::Model]) -> Result<Taken, Error> {
        let catalogue = self.calls.shelf.fresh(&self.store).await?;
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let own = catalogue.all().filter(|served| matches!(served.runs, Runs::Own(_)));
        let own = own.map(|served| served.policy.name.clone());
        let offered = rows.iter().filter(|row| state(&row.state) != ToolState::Gone);
        for name in own.chain(offered.map(|row| row.name.clone())) {
            *names.entry(name).or_default() += 1;
        }
        names.retain(|_, count| *count > 1);
        Ok(Taken(names))
    }
}

const REJECTED: &str = "rejected by ";

/// Names that more than one tool has.
struct Taken(BTreeMap<String, usize>);

impl Taken {
    fn contains(&self, row: &upstream_tool::Model) -> bool {
        self.0.contains_key(&row.name)
    }
}

fn told(row: &upstream_tool::Model, owner: Option<String>, taken: &Taken) -> Waiting {
    let why = if row.reason.starts_with(REJECTED) {
        Why::Rejected
    } else if taken.contains(row) {
        Why::Collision
    } else if row.pinned.is_some() {
        Why::Changed
    } else {
        Why::New
    };
    let text = row.offered.as_ref().or(row.pinned.as_ref());
    let shown = text.and_then(|text| serde_json::from_str::<Shown>(text).ok());
    let shown = shown.map(|shown| sanitize::tool(shown, &row.name));
    let description = shown.as_ref().and_then(|shown| shown.description.as_deref()).unwrap_or_default();
    Waiting {
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

/// Whoever has the name now gives it up: one name, one tool.
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

/// Whether the tool is still what was looked at, and so is served now.
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

fn lines(row: &upstream_tool::Model) -> Vec<String> {
    let (before, after) = (pretty(row.pinned.as_deref()), pretty(row.offered.as_deref()));
    let diff = TextDiff::from_lines(&before, &after);
    let mut unified = diff.unified_diff();
    let text = unified.context_radius(AROUND).header("approved", "offered").to_string();
    text.lines().map(str::to_owned).collect()
}

/// Members in one order, so that only what changed is different.
fn pretty(text: Option<&str>) -> String {
    let Some(text) = text else { return String::new() };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return visible(text) };
    let mut pretty = visible(&format!("{value:#}"));
    pretty.push('\n');
    pretty
}

/// What would be hidden is what a person has to see before they approve.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if sanitize::is_hidden(letter) {
            out.extend(letter.escape_unicode());
        } else {
            out.push(letter);
        }
    }
    out
}
