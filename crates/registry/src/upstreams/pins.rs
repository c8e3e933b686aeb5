//! Compares the tools that an upstream offers with the approved (pinned) definitions, and quarantines
//! differences.
//!
//! The whole definition is compared as the upstream sent it, because a changed schema or annotation can
//! mislead as much as a changed description.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sea_orm::{DbErr, EntityTrait, sea_query::OnConflict};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{
    Refreshed,
    names::{fold_name, name_problem, served_name},
};
use store::{
    Store, clock,
    entity::{
        upstream as server,
        upstream_tool::{self, APPROVED, GONE, QUARANTINED},
    },
};

use crate::{canonical, catalogue};

/// An administrator has to be able to read a definition before approving it.
const MAX_DEFINITION_BYTES: usize = 64 << 10;
/// Reason of a quarantined tool that is new and has no other problem.
pub const REASON_NEW: &str = "new";

/// Returns why a tool cannot be served even if it is approved, if there is a reason.
pub fn unservable_reason(name: &str, text: &str) -> Option<String> {
    let too_large = || {
        (text.len() > MAX_DEFINITION_BYTES).then(|| format!("it is larger than {MAX_DEFINITION_BYTES} bytes"))
    };
    name_problem(name).map(str::to_owned).or_else(too_large)
}

/// Updates the rows of an upstream's tools to what it offers now, and counts the differences.
pub(super) async fn compare(
    store: &Store,
    server: &server::Model,
    offered: Vec<Map<String, Value>>,
) -> Result<Refreshed, DbErr> {
    let write = store.write().await?;
    // The upstream may have been removed since it was asked; its tools must not be added again.
    if server::Entity::find_by_id(&server.namespace).one(&*write).await?.is_none() {
        return Ok(Refreshed::default());
    }
    let all = upstream_tool::Entity::find().all(&*write).await?;
    let (known, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|row| row.namespace == server.namespace);
    let known: BTreeMap<String, upstream_tool::Model> =
        known.into_iter().map(|row| (row.remote.clone(), row)).collect();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    let own = control::all().into_iter().map(|tool| tool.name.to_owned());
    for name in own.chain(others.into_iter().map(|row| row.name)) {
        taken.insert(fold_name(&name), name);
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
        let reason = unservable_reason(&name, &text).or_else(|| {
            Some(format!("its name is, or looks like, that of {}", taken.get(&fold_name(&name))?))
        });
        taken.entry(fold_name(&name)).or_insert_with(|| name.clone());
        let offered = Offered { remote: &remote, name: &name, text: &text };
        let row = updated_row(server, known.get(&remote), &offered, reason, &mut refreshed);
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
    catalogue::bump_revision(&write).await?;
    write.commit().await?;
    Ok(refreshed)
}

struct Offered<'o> {
    remote: &'o str,
    name: &'o str,
    text: &'o str,
}

/// Returns the new row of an offered tool, or `None` if its row does not change.
fn updated_row(
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
        return Some(row(QUARANTINED, reason.unwrap_or_else(|| REASON_NEW.to_owned())));
    };
    if known.offered_hash.as_ref() == Some(&hash) && known.state != GONE {
        refreshed.unchanged += 1;
        return None;
    }
    if known.pinned_hash.as_ref() == Some(&hash) && reason.is_none() {
        // The definition is the approved one again: the tool was gone, or its upstream has reverted a change.
        refreshed.unchanged += 1;
        return Some(row(APPROVED, String::new()));
    }
    refreshed.changed += 1;
    let changed = if known.pinned.is_some() { "changed since it was approved" } else { REASON_NEW };
    Some(row(QUARANTINED, reason.unwrap_or_else(|| changed.to_owned())))
}

async fn upsert(write: &store::WriteTransaction, row: upstream_tool::Model) -> Result<(), DbErr> {
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
