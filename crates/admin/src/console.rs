//! The web console: pages for administrators and users, built on the operations only.
//!
//! Every page works without JavaScript. A GET never changes anything; a POST must carry the CSRF token of its
//! session.

mod assets;
mod audit;
mod chat;
mod components;
mod dead;
mod egress;
mod failure;
mod flash;
mod form;
mod format;
mod guard;
mod handoff;
mod jobs;
mod leases;
mod live;
mod login;
mod markdown;
mod memory;
mod nodes;
mod overview;
mod page;
mod projects;
mod quarantine;
mod rules;
mod schedules;
mod servers;
mod session;
mod settings;
mod skills;
mod tasks;
mod threads;
mod tokens;
mod tools;
mod work;
mod workflows;

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    response::Redirect,
    routing::{any, get, post},
};

use self::failure::Failure;
pub(super) use self::session::id as session_id;
use super::Admin;

const HOME: &str = "/console";
pub(super) const LOGIN: &str = "/console/login";
/// More than any form needs. The text of a skill has 64 KiB, and a browser may send each byte as three.
const MAX_FORM_BYTES: usize = 256 << 10;

struct Console {
    admin: Arc<Admin>,
    /// The last verification of the audit's hash chain.
    last_check: Mutex<Option<audit::ChainCheck>>,
}

pub(super) fn router(admin: Arc<Admin>) -> Router {
    let console = Arc::new(Console { admin, last_check: Mutex::default() });
    Router::new()
        .route("/", get(async || Redirect::to(HOME)))
        .route(HOME, get(overview::show))
        .route("/console/", get(async || Redirect::to(HOME)))
        .route("/console/assets/{name}", get(assets::serve))
        .route("/console/login", get(login::show).post(login::sign_in))
        .route("/console/logout", post(login::leave))
        .route(chat::CHAT, get(chat::show).post(chat::send))
        .route("/console/chat/stream", post(chat::stream))
        .route("/console/chat/stop", post(chat::stop))
        .route("/console/chat/live", get(chat::live))
        .route("/console/threads", get(threads::list))
        .route("/console/threads/thread", get(threads::show))
        .route("/console/threads/rename", post(threads::rename))
        .route("/console/threads/delete", post(threads::delete))
        .route("/console/threads/export", get(threads::export))
        .route("/console/handoffs", get(work::list))
        .route("/console/handoffs/live", get(work::live))
        .route("/console/handoffs/{id}", get(handoff::show))
        .route("/console/handoffs/{id}/live", get(handoff::live))
        .route("/console/dead", get(dead::list))
        .route("/console/dead/letter", get(dead::show))
        .route("/console/dead/replay", post(dead::replay))
        .route("/console/dead/drop", post(dead::remove))
        .route("/console/tasks", get(tasks::list))
        .route("/console/tasks/{id}", get(tasks::show))
        .route("/console/projects", get(projects::list))
        .route("/console/workflows", get(workflows::list))
        .route("/console/workflows/{id}", get(workflows::show))
        .route("/console/workflows/{id}/live", get(workflows::live))
        .route("/console/workflows/start", post(workflows::start))
        .route("/console/workflows/resume", post(workflows::answer))
        .route("/console/workflows/pause", post(workflows::pause))
        .route("/console/workflows/cancel", post(workflows::cancel))
        .route("/console/workflows/retry", post(workflows::retry))
        .route("/console/jobs", get(jobs::list))
        .route("/console/jobs/{id}", get(jobs::show))
        .route("/console/jobs/{id}/live", get(jobs::live))
        .route("/console/jobs/cancel", post(jobs::cancel))
        .route("/console/nodes", get(nodes::list))
        .route("/console/nodes/live", get(nodes::live))
        .route("/console/nodes/node", get(nodes::show))
        .route("/console/nodes/cordon", post(nodes::cordon))
        .route("/console/nodes/drain", post(nodes::drain))
        .route("/console/nodes/uncordon", post(nodes::uncordon))
        .route("/console/nodes/remove", post(nodes::remove))
        .route("/console/tools", get(tools::list))
        .route("/console/tools/tool", get(tools::show).post(tools::set))
        .route("/console/quarantine", get(quarantine::list))
        .route("/console/quarantine/approve", post(quarantine::approve))
        .route("/console/quarantine/reject", post(quarantine::reject))
        .route("/console/skills", get(skills::list).post(skills::add))
        .route("/console/skills/new", get(skills::new))
        .route("/console/skills/skill", get(skills::show).post(skills::update))
        .route("/console/skills/delete", post(skills::delete))
        .route("/console/memory", get(memory::list))
        .route("/console/memory/text", get(memory::show))
        .route("/console/memory/delete", post(memory::delete))
        .route("/console/schedules", get(schedules::list).post(schedules::create))
        .route("/console/schedules/new", get(schedules::new))
        .route("/console/schedules/schedule", get(schedules::show))
        .route("/console/schedules/edit", get(schedules::edit).post(schedules::update))
        .route("/console/schedules/run", post(schedules::run))
        .route("/console/schedules/switch", post(schedules::switch))
        .route("/console/schedules/delete", post(schedules::delete))
        .route("/console/tokens", get(tokens::list).post(tokens::issue))
        .route("/console/tokens/new", get(tokens::new))
        .route("/console/tokens/revoke", post(tokens::revoke))
        .route("/console/leases", get(leases::list))
        .route("/console/leases/lease", get(leases::show))
        .route("/console/leases/revoke", post(leases::revoke))
        .route("/console/egress", get(egress::list))
        .route("/console/servers", get(servers::list).post(servers::add))
        .route("/console/servers/new", get(servers::new))
        .route("/console/servers/switch", post(servers::switch))
        .route("/console/servers/refresh", post(servers::refresh))
        .route("/console/servers/remove", post(servers::remove))
        .route("/console/servers/server", get(servers::show).post(servers::update))
        .route("/console/rules", get(rules::list).post(rules::add))
        .route("/console/rules/move", post(rules::shift))
        .route("/console/rules/remove", post(rules::remove))
        .route("/console/settings", get(settings::list).post(settings::set))
        .route("/console/settings/delete", post(settings::delete))
        .route("/console/audit", get(audit::list))
        .route("/console/audit/row", get(audit::show))
        .route("/console/audit/live", get(audit::live))
        .route("/console/audit/verify", post(audit::verify))
        .route("/console/{*rest}", any(async || Failure::PageNotFound))
        .method_not_allowed_fallback(async || Failure::MethodNotAllowed)
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(middleware::from_fn_with_state(console.clone(), guard::guard))
        .with_state(console)
}
