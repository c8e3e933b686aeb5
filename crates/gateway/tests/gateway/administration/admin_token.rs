//! The first administrator's token: rotation, revocation by deleting its file, and expiry.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde_json::{Value, json};
use store::entity::token;
use testkit::{GatewayProcess, eventually};
use tokio::task::JoinSet;

use super::support::{TOKENS, bare_ctl, ctl, parsed, store};

const ROTATE: &str = "/api/v1/tokens/rotate-admin";

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

async fn status_with(gateway: &GatewayProcess, secret: &str) -> u16 {
    gateway.ask_as(secret, "GET", "/api/v1/me", None).await.status
}

async fn rows(gateway: &GatewayProcess, tool: &str) -> Vec<Value> {
    gateway.audit(&format!("tool={tool}")).await
}

#[tokio::test]
async fn a_rotated_admin_token_is_refused_at_once() {
    let mut gateway = GatewayProcess::start_with(&[("telemetry.log_level", "debug")]).await;
    let (old, file) = (gateway.admin_token(), gateway.admin_token_file());
    let rotated = ctl(&gateway, &["tokens", "rotate-admin"]).await;
    assert_eq!(rotated.code, 0, "{rotated:?}");
    assert!(rotated.stderr.contains("the old one is refused"), "{rotated:?}");
    let new = gateway.admin_token();
    assert_ne!(old, new);
    assert_eq!((status_with(&gateway, &old).await, status_with(&gateway, &new).await), (401, 200));
    assert_eq!(mode(&file), 0o600);
    for text in [&rotated.stdout, &rotated.stderr, &gateway.log()] {
        assert!(!text.contains(&new) && !text.contains(&old), "the output contains a secret");
    }
    let recorded = rows(&gateway, "admin.token.rotate").await;
    assert_eq!((recorded.len(), &recorded[0]["status"]), (1, &json!("success")), "{recorded:?}");
    // The token in the file is also the valid one after a restart.
    gateway.start_again().await;
    assert_eq!(gateway.admin_token(), new);
    assert_eq!((status_with(&gateway, &old).await, status_with(&gateway, &new).await), (401, 200));
    let left: Vec<_> = fs::read_dir(gateway.folder()).unwrap().map(|it| it.unwrap().file_name()).collect();
    let extra = |name: &str| name.contains(".next") || name.contains(".rotated");
    assert!(!left.iter().any(|name| extra(&name.to_string_lossy())), "{left:?}");
}

/// One administrator has a copy of the token elsewhere; another has a different token.
#[tokio::test]
async fn a_copy_of_the_token_is_replaced_and_another_token_is_not() {
    let gateway = GatewayProcess::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (copy, own, link) =
        (folder.path().join("copy"), folder.path().join("own"), folder.path().join("link"));
    fs::write(&copy, gateway.admin_token()).unwrap();
    std::os::unix::fs::symlink(&copy, &link).unwrap();
    let (_, other) = gateway.issue(json!({ "label": "second", "agent": "admin" })).await;
    fs::write(&own, format!("{other}\n")).unwrap();
    let rotate = async |file: &Path| {
        let words = ["--gateway", &gateway.admin_url(), "--admin-token-file"].map(str::to_owned);
        let rest = [file.display().to_string(), "--json".into(), "tokens".into(), "rotate-admin".into()];
        bare_ctl(words.into_iter().chain(rest).collect()).await
    };
    let rotated = rotate(&link).await;
    assert_eq!(rotated.code, 0, "{rotated:?}");
    assert!(parsed(&rotated)["secret"].is_null(), "{rotated:?}");
    assert_eq!(fs::read_to_string(&copy).unwrap().trim(), gateway.admin_token());
    assert_eq!(mode(&copy), 0o600);
    assert!(link.is_symlink());
    let rotated = rotate(&own).await;
    assert_eq!(rotated.code, 0, "{rotated:?}");
    assert_eq!(fs::read_to_string(&own).unwrap().trim(), other, "a different token is not replaced");
    assert_eq!(status_with(&gateway, &other).await, 200);
    assert_ne!(fs::read_to_string(&copy).unwrap().trim(), gateway.admin_token());
    assert_eq!(status_with(&gateway, fs::read_to_string(&copy).unwrap().trim()).await, 401);
    // Only administrators may rotate.
    let (_, user) = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await;
    assert_eq!(gateway.ask_as(&user, "POST", ROTATE, None).await.status, 403);
}

#[tokio::test]
async fn deleting_the_file_and_restarting_revokes_the_old_token() {
    let mut gateway = GatewayProcess::start().await;
    for round in 1..=3 {
        let old = gateway.admin_token();
        fs::remove_file(gateway.admin_token_file()).unwrap();
        gateway.start_again().await;
        let new = gateway.admin_token();
        assert_ne!(old, new);
        assert_eq!((status_with(&gateway, &old).await, status_with(&gateway, &new).await), (401, 200));
        assert_eq!(
            rows(&gateway, "admin.token.revoke").await.len(),
            round,
            "each revocation has its audit row"
        );
        if round == 2 {
            gateway.must("POST", ROTATE, None).await;
        }
    }
    // A token that was put into the file by hand is accepted; a file without a token is refused.
    let old = gateway.admin_token();
    fs::write(gateway.admin_token_file(), "cyn_one-of-my-own-that-is-long-enough\n").unwrap();
    gateway.start_again().await;
    assert_eq!(status_with(&gateway, &old).await, 401);
    assert_eq!(status_with(&gateway, "cyn_one-of-my-own-that-is-long-enough").await, 200);
    fs::write(gateway.admin_token_file(), "").unwrap();
    gateway.start_again().await;
    assert_eq!(status_with(&gateway, "").await, 401);
    assert_eq!(status_with(&gateway, &gateway.admin_token()).await, 200);
}

/// Whenever the gateway is killed during rotations, the file contains a valid token after the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_during_a_rotation_leaves_a_valid_token() {
    let mut gateway = GatewayProcess::start().await;
    for round in 0..10_u64 {
        let request = gateway.http().post(format!("{}{ROTATE}", gateway.admin_url()));
        let request = request.bearer_auth(gateway.admin_token());
        let mut sent = JoinSet::new();
        sent.spawn(request.send());
        tokio::time::sleep(Duration::from_micros(700 * round)).await;
        gateway.start_again().await;
        drop(sent.join_next().await);
        assert_eq!(status_with(&gateway, &gateway.admin_token()).await, 200, "round {round}");
        let good = gateway.must("GET", &format!("{TOKENS}?state=active&agent=admin"), None).await;
        assert_eq!(good.as_array().unwrap().len(), 1, "exactly one administrator token is valid: {good}");
    }
}

/// Several operators rotate at once with copies of one token: one succeeds, and the others get an error.
#[tokio::test]
async fn one_of_several_concurrent_rotations_succeeds() {
    let gateway = GatewayProcess::start().await;
    for round in 0..5 {
        let old = gateway.admin_token();
        let asks = (0..4).map(|_| gateway.ask_as(&old, "POST", ROTATE, None));
        let answers = futures_util::future::join_all(asks).await;
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        let done = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(done, 1, "round {round}: {statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 401 | 409)), "{statuses:?}");
        let rotated = answers.iter().find(|answer| answer.status == 200).unwrap();
        assert_eq!(rotated.body["secret"], json!(gateway.admin_token()), "round {round}");
    }
}

#[tokio::test]
async fn expired_admin_token_is_replaced_at_the_next_start() {
    let mut gateway = GatewayProcess::start_with(&[("admin.token_lives", "3s")]).await;
    let old = gateway.admin_token();
    eventually("the token to expire", async || (status_with(&gateway, &old).await == 401).then_some(()))
        .await;
    gateway.start_again().await;
    assert_ne!(gateway.admin_token(), old);
    assert_eq!(status_with(&gateway, &gateway.admin_token()).await, 200);
}

/// Earlier builds created tokens that were valid for a hundred years.
#[tokio::test]
async fn token_of_an_earlier_build_gets_an_expiry() {
    let mut gateway = GatewayProcess::start().await;
    let expires = async |gateway: &GatewayProcess| {
        let all = token::Entity::find().filter(token::Column::Agent.eq("admin"));
        all.one(&store(gateway).await).await.unwrap().unwrap().expires_at
    };
    let day = 24 * 60 * 60 * 1_000_000_i64;
    let now = store::clock::now();
    let fresh = expires(&gateway).await;
    assert!((89 * day..91 * day).contains(&(fresh - now)), "90 days: {fresh}");
    token::Entity::update_many()
        .col_expr(token::Column::ExpiresAt, Expr::value(now + 36_500 * day))
        .exec(&store(&gateway).await)
        .await
        .unwrap();
    gateway.start_again().await;
    let capped = expires(&gateway).await;
    assert!((89 * day..91 * day).contains(&(capped - now)), "{capped}");
    assert_eq!(status_with(&gateway, &gateway.admin_token()).await, 200);
}
