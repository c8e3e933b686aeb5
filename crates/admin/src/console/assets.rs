//! The style sheet, the script and the icon. Their paths contain a hash of the content, so browsers may cache
//! them.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::Failure;
use access::tokens;

pub(super) struct Asset {
    pub(super) path: String,
    kind: &'static str,
    content: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("style.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("js", "text/javascript; charset=utf-8", include_str!("script.js")));
/// Style and script of the page *Chat*.
pub(super) static CHAT_STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("chat/style.css")));
pub(super) static CHAT_SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("js", "text/javascript; charset=utf-8", include_str!("chat/script.js")));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("svg", "image/svg+xml", include_str!("icon.svg")));

impl Asset {
    fn new(ending: &str, kind: &'static str, content: &'static str) -> Self {
        let hash = tokens::hash(content);
        let path = format!("/console/assets/{}.{ending}", &hash[..16]);
        Self { path, kind, content }
    }
}

pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let known = [&STYLE, &SCRIPT, &CHAT_STYLE, &CHAT_SCRIPT, &ICON];
    let found = known.into_iter().find(|asset| asset.path.rsplit('/').next() == Some(&name));
    let Some(asset) = found else { return Failure::PageNotFound.into_response() };
    let headers = [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.content).into_response()
}
