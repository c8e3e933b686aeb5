//! Administration: the same operations as a REST API and as a web console, on a listener of its own.

mod actor;
mod authentication;
mod change;
mod chat_keys;
mod check;
mod console;
mod error;
mod guard;
mod operations;
mod orchestrator;
mod rest;
mod state;
mod work_cache;

use std::sync::Arc;

use axum::{Router, middleware};

use actor::Actor;
use error::Error;
pub use state::{Admin, Resources, Settings};

impl Admin {
    pub fn router(self: Arc<Self>) -> Router {
        let surfaces = rest::router(self.clone()).merge(console::router(self.clone()));
        let paced = surfaces.layer(middleware::from_fn_with_state(self.clone(), guard::limit_rate));
        let checked = paced.layer(middleware::from_fn(guard::check_address));
        checked.layer(middleware::from_fn_with_state(self, guard::check_host))
    }
}
