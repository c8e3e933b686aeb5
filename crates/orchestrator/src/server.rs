//! The listener for clients: routes and middleware.

mod cross_origin;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use listener::hosts;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::{caller, chat, error::ApiError, models, openapi, responses, state::App, threads};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the routes that need a key. Each family of routes adds its own here, and to `openapi.json`.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/v1/models", get(models::list)),
        ("/v1/models/{id}", get(models::get)),
        ("/v1/chat/completions", post(chat::create)),
        ("/v1/chat/completions/{id}", get(chat::get)),
        ("/v1/chat/completions/{id}/cancel", post(chat::cancel)),
        ("/v1/responses", post(responses::create)),
        ("/v1/responses/{id}", get(responses::get).delete(responses::delete)),
        ("/v1/responses/{id}/cancel", post(responses::cancel)),
        ("/v1/responses/{id}/input_items", get(responses::input_items)),
        ("/v1/threads", get(threads::list)),
        ("/v1/threads/{id}", get(threads::get).post(threads::rename).delete(threads::delete)),
        ("/v1/threads/{id}/messages", get(threads::messages)),
        ("/v1/threads/{id}/export", get(threads::export)),
    ]
}

/// Returns the service.
pub(crate) fn router(app: Arc<App>) -> Router {
    let for_keys =
        routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    for_keys
        .route_layer(from_fn_with_state(app.clone(), caller::authenticate))
        .route("/openapi.json", get(openapi::get))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(from_fn_with_state(app.clone(), check_request))
        .with_state(app)
}

/// Checks the host name, answers for other origins, and names every response.
async fn check_request(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let id = format!("req_{}", Uuid::now_v7().simple());
    let origin = cross_origin::permitted(&app.config.api.origins, request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = match check_host(&app, &request) {
        Err(refused) => refused.into_response(),
        Ok(()) if origin.is_some() && cross_origin::is_preflight(&request) => cross_origin::preflight(),
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = origin {
        cross_origin::permit(response.headers_mut(), origin);
    }
    let status = response.status();
    app.metrics.count_response(status.as_u16());
    debug!(request.id = id, %method, path, status = status.as_u16(), "Request answered.");
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn check_host(app: &App, request: &Request) -> Result<(), ApiError> {
    let host = hosts::requested(request.uri(), request.headers());
    if host.as_ref().is_some_and(|host| hosts::is_known(host, &app.config.api.hosts)) {
        return Ok(());
    }
    if let Some(host) = host {
        warn!(%host, "Request refused: api.hosts does not list its host name.");
    }
    let message = "This host name is not served; the setting api.hosts lists those that are.";
    Err(ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
}

async fn unknown_path(method: Method, uri: Uri) -> ApiError {
    let message = format!("Unknown request: {method} {}. See docs/chat-api.md for all paths.", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
}

async fn unknown_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not allow {method}.", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
