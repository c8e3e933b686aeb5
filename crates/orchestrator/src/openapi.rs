//! `GET /openapi.json`: the OpenAPI document of this API. Tests hold it against the program.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};

const DOCUMENT: &str = include_str!("../openapi.json");

/// Needs no key: it is the same for all, and has no secrets.
pub(crate) async fn get() -> Response {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (StatusCode::OK, headers, Body::from(DOCUMENT)).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn document_has_every_path_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let documented: BTreeSet<&str> =
            document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut served: BTreeSet<&str> = crate::server::routes().into_iter().map(|(path, _)| path).collect();
        served.insert("/openapi.json");
        assert_eq!(documented, served);
    }
}
