//! The console: pages for administrators and users, made from the operations alone.
//!
//! Pages are whole without a script. It never changes anything for a GET, and nothing for a POST that does not carry its
//! session's own word.

mod assets; // styles and script
mod audit; // looking back, and watching
mod dead; // handoffs that were given up
mod failure; // pages for what goes wrong
mod flash; // a word after a change
mod form; // what somebody filled in, and proof that it was they
mod guard; // before and after every request
mod handoff; // one, from its first attempt to its answer
mod live; // pages that follow what happens
mod login; // coming in, going out
mod overview; // how things are
mod page; // the frame around every page
mod parts; // what pages are made of
mod quarantine; // tools that wait for a decision
mod rules; // access rules
mod servers; // servers behind us
mod session; // who is in
mod settings; // of the whole system
mod tokens; // issue, list, revoke
mod tools; // on, off, for whom
mod when; // times and numbers as people read them
mod work; // queues, instances, handoffs

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
/// No form of ours is longer.
const LARGEST_FORM: usize = 128 << 10;

struct Console {
    admin: Arc<Admin>,
    /// What following the audit's chain brought the last time.
    checked: Mutex<Option<audit::Checked>>,
}

pub(super) fn router(admin: Arc<Admin>) -> Router {
    let console = Arc::new(Console { admin, checked: Mutex::default() });
    Router::new()
        .route("/", get(async || Redirect::to(HOME)))
        .route(HOME, get(overview::show))
        .route("/console/", get(async || Redirect::to(HOME)))
        .route("/console/assets/{name}", get(assets::serve))
        .route("/console/login", get(login::show).post(login::enter))
        .route("/console/logout", post(login::leave))
        .route("/console/handoffs", get(work::list))
        .route("/console/handoffs/live", get(work::live))
        .route("/console/handoffs/{id}", get(handoff::show))
        .route("/console/handoffs/{id}/live", get(handoff::live))
        .route("/console/dead", get(dead::list))
        .route("/console/dead/letter", get(dead::show))
        .route("/console/dead/replay", post(dead::replay))
        .route("/console/dead/drop", post(dead::remove))
        .route("/console/tools", get(tools::list))
        .route("/console/tools/tool", get(tools::show).post(tools::set))
        .route("/console/quarantine", get(quarantine::list))
        .route("/console/quarantine/approve", post(quarantine::approve))
        .route("/console/quarantine/reject", post(quarantine::reject))
        .route("/console/tokens", get(tokens::list).post(tokens::issue))
        .route("/console/tokens/new", get(tokens::new))
        .route("/console/tokens/revoke", post(tokens::revoke))
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
        .route("/console/{*rest}", any(async || Failure::NoPage))
        .method_not_allowed_fallback(async || Failure::Method)
        .layer(DefaultBodyLimit::max(LARGEST_FORM))
        .layer(middleware::from_fn_with_state(console.clone(), guard::guard))
        .with_state(console)
}
