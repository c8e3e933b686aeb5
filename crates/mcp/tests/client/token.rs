//! The bearer token and its file.

use std::{fs, path::Path, time::Duration};

use mcp::Error;
use testkit::{Answer, Gateway, eventually};

use crate::support::{call, chain, client, client_with_token, tool};

async fn gateway() -> Gateway {
    let gateway = Gateway::start(vec![tool("works", || Answer::text("done"))]).await;
    gateway.require_token("first-secret");
    gateway
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Replaces the file atomically, as a mounted secret is replaced.
fn replace(path: &Path, token: &str) {
    let aside = path.with_extension("new");
    fs::write(&aside, token).unwrap();
    fs::rename(aside, path).unwrap();
}

#[tokio::test]
async fn a_refused_token_is_reloaded_at_once() {
    let (gateway, folder) = (gateway().await, folder());
    let path = folder.path().join("token");
    replace(&path, "first-secret\n");
    let client = client_with_token(gateway.url(), path.clone());
    client.call(call("works")).await.unwrap();

    gateway.require_token("later-secret");
    replace(&path, "later-secret\n");
    client.call(call("works")).await.unwrap();
    let sent: Vec<_> = gateway.calls().into_iter().filter_map(|called| called.authorization).collect();
    assert_eq!(sent, ["Bearer first-secret", "Bearer later-secret"]);
}

#[tokio::test]
async fn a_changed_token_is_used_before_the_old_one_is_refused() {
    let folder = folder();
    let gateway = Gateway::start(vec![tool("works", || Answer::text("done"))]).await;
    let path = folder.path().join("token");
    replace(&path, "first-secret");
    let client = client_with_token(gateway.url(), path.clone());
    client.call(call("works")).await.unwrap();
    replace(&path, "later-secret");
    eventually("the new token is used", async || {
        client.call(call("works")).await.unwrap();
        let last = gateway.calls().pop().and_then(|called| called.authorization);
        (last.as_deref() == Some("Bearer later-secret")).then_some(())
    })
    .await;
    // Without the file, and past the check interval, the last token is still used.
    fs::remove_file(&path).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    client.call(call("works")).await.unwrap();
}

#[tokio::test]
async fn a_wrong_token_is_rejected_without_appearing_in_the_error() {
    let (gateway, folder) = (gateway().await, folder());
    let path = folder.path().join("token");
    replace(&path, "wrong-secret");
    let client = client_with_token(gateway.url(), path);
    let error = client.call(call("works")).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized(_)) && !error.is_transient(), "{error:?}");
    assert!(!format!("{error:?} {} {client:?}", chain(&error)).contains("secret"), "{error:?} {client:?}");
}

#[tokio::test]
async fn a_missing_token_is_rejected() {
    let error = client(gateway().await.url()).tools().await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized(_)), "{error:?}");
}

#[tokio::test]
async fn a_missing_or_invalid_token_file_is_named_in_the_error() {
    let (gateway, folder) = (gateway().await, folder());
    for content in [None, Some(" \n"), Some("two\nlines")] {
        let path = folder.path().join("token");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let error = client_with_token(gateway.url(), path).call(call("works")).await.unwrap_err();
        assert!(matches!(error, Error::Token(..)), "{content:?}: {error:?}");
        assert!(chain(&error).contains("/token: "), "{}", chain(&error));
        assert!(!chain(&error).contains("lines"), "{}", chain(&error));
    }
    assert!(gateway.calls().is_empty());
}
