//! A tool is served as it was approved. The whole object as the server sent it is compared, not only what people look at:
//! a changed schema or annotation misleads as well as a changed description.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sea_orm::{DbErr, EntityTrait, sea_query::OnConflict};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{
    Refreshed,
    names::{folded, problem, served_name},
};
use crate::{
    canonical, catalogue, clock,
    store::{
        Store,
        entity::{
            upstream as server,
            upstream_tool::{self, APPROVED, GONE, QUARANTINED},
        },
    },
    tools,
};

/// Nobody can approve what nobody can read.
const LARGEST: usize = 64 << 10;
/// Why a tool waits that is in nobody's way and has nothing wrong with it.
pub const NEW: &str = "new";

/// Why a tool cannot be served whoever approves it, if it cannot.
pub fn unservable(name: &str, text: &str) -> Option<String> {
    let too_large = || (text.len() > LARGEST).then(|| format!("it is larger than {LARGEST} bytes"));
    problem(name).map(str::to_owned).or_else(too_large)
}

pub(super) async fn compare(
    store: &Store,
    server: &server::Model,
    offered: Vec<Map<String, Value>>,
) -> Result<Refreshed, DbErr> {
    let write = store.write().await?;
    // It may have been removed while it was asked; its tools must not come back.
    if server::Entity::find_by_id(&server.namespace).one(&*write).await?.is_none() {
        return Ok(Refreshed::default());
    }
    let all = upstream_tool::Entity::find().all(&*write).await?;
    let (known, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|row| row.namespace == server.namespace);
    let known: BTreeMap<String, upstream_tool::Model> =
        known.into_iter().map(|row| (row.remote.clone(), row)).collect();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    let own = tools::all().into_iter().map(|tool| tool.name.to_owned());
    for name in own.chain(others.into_iter().map(|row| row.name)) {
        taken.insert(folded(&name), name);
    }
    let mut refreshed = Refreshed::default();
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    for tool in offered {
        let Some(remote) = tool.get("name").and_then(Value::as_str).map(str::to_owned) else {
            warn!(namespace = server.namespace, "Upstream offers a tool without a name; ignored.");
            continue;
        };
        if !seen.insert(remote.clone()) {
            warn!(
                namespace = server.namespace,
                remote, "Upstream offers two tools with the same name; using the first."
            );
            continue;
        }
        let name = served_name(&server.namespace, server.prefix, &remote);
        let text = canonical::text(&Value::Object(tool));
        let reason = unservable(&name, &text)
            .or_else(|| Some(format!("its name is, or looks like, that of {}", taken.get(&folded(&name))?)));
        taken.entry(folded(&name)).or_insert_with(|| name.clone());
        let offered = Offered { remote: &remote, name: &name, text: &text };
        let row = judge(server, known.get(&remote), &offered, reason, &mut refreshed);
        changes.extend(row);
    }
    let gone: Vec<&upstream_tool::Model> =
        known.values().filter(|row| !seen.contains(&row.remote) && row.state != GONE).collect();
    refreshed.gone = gone.len();
    for row in &gone {
        let row = upstream_tool::Model {
            state: GONE.to_owned(),
            reason: "its server does not offer it any more".to_owned(),
            ..(*row).clone()
        };
        changes.push(row);
    }
    if changes.is_empty() {
        return Ok(refreshed);
    }
    for row in changes {
        upsert(&write, row).await?;
    }
    catalogue::touch(&write).await?;
    write.commit().await?;
    Ok(refreshed)
}

struct Offered<'o> {
    remote: &'o str,
    name: &'o str,
    text: &'o str,
}

/// The row as it has to be now, if that is not how it is.
fn judge(
    server: &server::Model,
    known: Option<&upstream_tool::Model>,
    offered: &Offered<'_>,
    reason: Option<String>,
    refreshed: &mut Refreshed,
) -> Option<upstream_tool::Model> {
    let hash = HEXLOWER.encode(&Sha256::digest(offered.text));
    let row = |state: &str, reason: String| upstream_tool::Model {
        namespace: server.namespace.clone(),
        remote: offered.remote.to_owned(),
        name: offered.name.to_owned(),
        pinned: known.and_then(|known| known.pinned.clone()),
        pinned_hash: known.and_then(|known| known.pinned_hash.clone()),
        offered: Some(offered.text.to_owned()),
        offered_hash: Some(hash.clone()),
        state: state.to_owned(),
        reason,
        decided_by: known.and_then(|known| known.decided_by.clone()),
        seen_at: clock::now(),
    };
    let Some(known) = known else {
        refreshed.new += 1;
        return Some(row(QUARANTINED, reason.unwrap_or_else(|| NEW.to_owned())));
    };
    if known.offered_hash.as_ref() == Some(&hash) && known.state != GONE {
        refreshed.unchanged += 1;
        return None;
    }
    if known.pinned_hash.as_ref() == Some(&hash) && reason.is_none() {
        // It is what was approved: it was away, or its server thought better of the change.
        refreshed.unchanged += 1;
        return Some(row(APPROVED, String::new()));
    }
    refreshed.changed += 1;
    let changed = if known.pinned.is_some() { "changed since it was approved" } else { NEW };
    Some(row(QUARANTINED, reason.unwrap_or_else(|| changed.to_owned())))
}

async fn upsert(write: &crate::store::Write, row: upstream_tool::Model) -> Result<(), DbErr> {
    use upstream_tool::Column;
    let columns = [
        Column::Name,
        Column::Pinned,
        Column::PinnedHash,
        Column::Offered,
        Column::OfferedHash,
        Column::State,
        Column::Reason,
        Column::DecidedBy,
        Column::SeenAt,
    ];
    let row = upstream_tool::ActiveModel::from(row);
    let replace = OnConflict::columns([Column::Namespace, Column::Remote]).update_columns(columns).to_owned();
    upstream_tool::Entity::insert(row).on_conflict(replace).exec_without_returning(&**write).await?;
    Ok(())
}
