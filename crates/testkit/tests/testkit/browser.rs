//! Tests the browser helpers that the console tests use.

use std::{fs, net::Ipv4Addr, path::Path};

use axum::{
    Router,
    response::{Html, IntoResponse},
    routing::get,
};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use testkit::Browser;
use tokio::task::JoinSet;

const POLICY: &str = "default-src 'none'; script-src 'self'; form-action 'self'";

const PAGE: &str = r#"<!doctype html><title>A page</title>
<form><input id="name" value="old"><button id="greet" type="button">Greet</button></form>
<p id="greeting"></p><ul><li>one</li><li>two</li></ul>
<script src="/script.js"></script>"#;

const SCRIPT: &str = r#"
const field = document.querySelector('#name');
document.querySelector('#greet').addEventListener("click", () => {
  setTimeout(() => { document.querySelector('#greeting').textContent = `Hello ${field.value}`; }, 50);
});"#;

const FORBIDDEN: &str = "<!doctype html><title>Another</title><script>document.title = 'Ran'</script>";

/// Serves the pages until the returned set is dropped.
async fn serve() -> (JoinSet<()>, String) {
    let page = |text| get(async move || ([(CONTENT_SECURITY_POLICY, POLICY)], Html(text)));
    let script = async || ([(CONTENT_TYPE, "text/javascript")], SCRIPT).into_response();
    let app = Router::new()
        .route("/", page(PAGE))
        .route("/forbidden", page(FORBIDDEN))
        .route("/script.js", get(script));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut served = JoinSet::new();
    served.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (served, url)
}

#[tokio::test]
async fn browser_fills_clicks_and_reads() {
    let (_served, url) = serve().await;
    let browser = Browser::start().await;
    browser.open(&url).await;
    browser.fill("#name", "world").await;
    browser.click("#greet").await;
    browser.wait_for_text("#greeting", "Hello world").await;
    assert_eq!(browser.count("li").await, 2);
    assert_eq!(browser.text("li:last-child").await, "two");
    browser.wait_for_no(".absent").await;

    // The same by keyboard.
    browser.script("document.querySelector('#name').select()", vec![]).await;
    browser.type_text("keys").await;
    browser.press_tab().await;
    assert!(browser.has_focus("#greet").await);
    browser.press_enter().await;
    browser.wait_for_text("#greeting", "Hello keys").await;

    browser.resize(400, 700).await;
    let size = browser.script("return [innerWidth, innerHeight]", vec![]).await;
    assert_eq!(size, serde_json::json!([400, 700]));
    assert!(!browser.overflows().await);
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("page.png");
    browser.screenshot(&picture).await;
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
}

#[tokio::test]
async fn browser_reports_policy_violations() {
    let (_served, url) = serve().await;
    let browser = Browser::start().await;
    browser.open(&url).await;
    browser.wait_for("#greet").await;
    assert!(browser.violations().await.is_empty(), "{:?}", browser.violations().await);
    browser.open(&format!("{url}/forbidden")).await;
    assert_eq!(browser.client().title().await.unwrap(), "Another");
    let violations = browser.violations().await;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].is_error(), "{violations:?}");
}

#[tokio::test]
async fn browser_leaves_no_process_behind() {
    let browser = Browser::start().await;
    browser.open("about:blank").await;
    let profile = browser.profile().display().to_string();
    assert!(processes_with(&profile) > 0);
    drop(browser);
    assert_eq!(processes_with(&profile), 0);
    assert!(!Path::new(&profile).exists());
}

/// Returns the number of processes whose command line contains `wanted`.
fn processes_with(wanted: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    entries.filter(|path| fs::read_to_string(path).is_ok_and(|line| line.contains(wanted))).count()
}
