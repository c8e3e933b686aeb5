//! The REST API: JSON requests and responses, a bearer token with every request. Cookies are never read, so
//! no foreign page can act for a signed-in administrator.

mod audit;
mod catalogues;
mod document;
mod egress;
mod extract;
mod jobs;
mod leases;
mod memory;
mod nodes;
mod outbox;
mod preferences;
mod refusal;
mod rules;
mod schedules;
mod settings;
mod skills;
mod tasks;
mod tokens;
mod tools;
mod upstreams;
mod work;
mod workflows;

use std::sync::Arc;

use axum::{Json, Router, extract::DefaultBodyLimit, middleware, response::Response, routing::any};
pub(super) use extract::bearer;
use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
pub(super) use refusal::Refusal;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::Admin;

/// The result of a handler that responds with JSON.
type JsonResult<T> = Result<Json<T>, Refusal>;

pub(super) fn router(admin: Arc<Admin>) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = Arc::new(document);
    router
        .route("/api/openapi.json", axum::routing::get(async move || Json(document)))
        .route("/api/{*rest}", any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::map_response(forbid_caching))
        // `guard::limit_rate` has read the body and limits its size.
        .layer(DefaultBodyLimit::disable())
        .with_state(admin)
}

fn routes() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::with_openapi(document::base())
        .routes(routes!(tools::list))
        .routes(routes!(tools::get, tools::set))
        .routes(routes!(tools::quarantine))
        .routes(routes!(tools::diff))
        .routes(routes!(tools::approve))
        .routes(routes!(tools::reject))
        .routes(routes!(tokens::list, tokens::issue))
        .routes(routes!(tokens::rotate_admin))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::who))
        .routes(routes!(leases::list, leases::issue))
        .routes(routes!(leases::get, leases::revoke))
        .routes(routes!(outbox::list))
        .routes(routes!(egress::usage))
        .routes(routes!(upstreams::list, upstreams::add))
        .routes(routes!(upstreams::get, upstreams::update, upstreams::remove))
        .routes(routes!(upstreams::refresh))
        .routes(routes!(upstreams::enable))
        .routes(routes!(upstreams::disable))
        .routes(routes!(rules::list, rules::add))
        .routes(routes!(rules::reorder))
        .routes(routes!(rules::remove))
        .routes(routes!(settings::list))
        .routes(routes!(settings::get, settings::set, settings::delete))
        .routes(routes!(preferences::list, preferences::set, preferences::delete))
        .routes(routes!(skills::list, skills::put))
        .routes(routes!(skills::get, skills::delete))
        .routes(routes!(memory::profiles))
        .routes(routes!(memory::list, memory::change))
        .routes(routes!(memory::get))
        .routes(routes!(memory::search))
        .routes(routes!(schedules::list, schedules::create))
        .routes(routes!(schedules::preview))
        .routes(routes!(schedules::get, schedules::update, schedules::delete))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::runs))
        .routes(routes!(catalogues::projects::list))
        .routes(routes!(catalogues::projects::put, catalogues::projects::delete))
        .routes(routes!(catalogues::personas::list))
        .routes(routes!(catalogues::personas::put, catalogues::personas::delete))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::get))
        .routes(routes!(workflows::list))
        .routes(routes!(workflows::get))
        .routes(routes!(workflows::start))
        .routes(routes!(workflows::cancel))
        .routes(routes!(workflows::pause))
        .routes(routes!(workflows::resume))
        .routes(routes!(workflows::retry))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get, nodes::remove))
        .routes(routes!(nodes::cordon))
        .routes(routes!(nodes::uncordon))
        .routes(routes!(nodes::drain))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::log))
        .routes(routes!(jobs::cancel))
        .routes(routes!(catalogues::models::list))
        .routes(routes!(catalogues::models::put, catalogues::models::delete))
        .routes(routes!(audit::query))
        .routes(routes!(audit::tail))
        .routes(routes!(audit::export))
        .routes(routes!(audit::heads))
        .routes(routes!(audit::verify))
        .routes(routes!(audit::nodes))
        .routes(routes!(work::status))
        .routes(routes!(work::handoff))
        .routes(routes!(work::dead))
        .routes(routes!(work::letter, work::remove))
        .routes(routes!(work::replay))
}

async fn not_found() -> Refusal {
    let what = "unknown path; /api/openapi.json lists the paths";
    Refusal::new(StatusCode::NOT_FOUND, "not_found", what)
}

async fn method_not_allowed() -> Refusal {
    let what = "method not allowed for this path; /api/openapi.json lists the methods";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", what)
}

async fn forbid_caching(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
