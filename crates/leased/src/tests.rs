//! Against a scripted gateway: a lease is renewed when it is due, and given back once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use contract::{
    ToolContract,
    lease::{Renew, Revoke},
    project,
};
use mcp::Client;
use serde_json::json;
use testkit::{Answer, Gateway, Tool, eventually};
use time::OffsetDateTime;

use super::{CallFailure, HeldLease, call, give_back, keep_renewed, send, under_lease};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the text of a lease that began `ago` and expires in `left`.
fn lease(ago: Duration, left: Duration) -> String {
    lease_from(OffsetDateTime::now_utc() - ago, ago + left)
}

fn lease_from(begin: OffsetDateTime, lifetime: Duration) -> String {
    let micros = |at: OffsetDateTime| i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap();
    let lease = json!({
        "lease_id": "l-1", "agent": "sandbox", "user_id": "ada", "task_id": "t-1", "job_id": "j-1",
        "not_before": micros(begin), "expires_at": micros(begin + lifetime), "key": "",
    });
    let lease: policy::Lease = serde_json::from_value(lease).unwrap();
    lease.sign(&nkeys::KeyPair::new_user()).unwrap()
}

fn tool(name: &str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Tool {
    Tool::new(name, "", json!({ "type": "object" }), move |_| answer())
}

/// Renews leases for `lifetime`. Its other tools answer with a project and as `lease.revoke` does.
async fn gateway(lifetime: Duration, project: impl Fn() -> Answer + Send + Sync + 'static) -> Gateway {
    gateway_renewing(move || lease(Duration::ZERO, lifetime), project).await
}

/// Renews leases with the text that `renew` returns.
async fn gateway_renewing(
    renew: impl Fn() -> String + Send + Sync + 'static,
    project: impl Fn() -> Answer + Send + Sync + 'static,
) -> Gateway {
    let renewed = move || {
        Answer::structured(
            json!({ "lease_id": "l-1", "lease": renew(), "expires_at": "", "renewable_until": "" }),
        )
    };
    let revoked = || Answer::structured(json!({ "lease_id": "l-1", "revoked": 1 }));
    Gateway::start(vec![
        tool(Renew::NAME, renewed),
        tool(Revoke::NAME, revoked),
        tool(project::Get::NAME, project),
    ])
    .await
}

fn client(gateway: &Gateway) -> Client {
    Client::new(mcp::Options {
        url: gateway.url(),
        token_file: None,
        connect_timeout: PATIENCE,
        call_timeout: PATIENCE,
        max_result_bytes: 1 << 20,
        fast_path: true,
        profile: None,
    })
    .unwrap()
}

fn wanted() -> project::Get {
    project::Get { project_id: "p-1".to_owned() }
}

fn found() -> Answer {
    Answer::structured(json!({
        "project_id": "p-1", "name": "website", "title": "", "description": "", "user_id": null,
        "updated_at": "2026-01-01T00:00:00Z",
    }))
}

fn called(gateway: &Gateway) -> Vec<String> {
    gateway.calls().into_iter().map(|call| call.name).collect()
}

#[tokio::test]
async fn lease_is_renewed_only_when_it_is_about_to_expire() {
    let hour = Duration::from_secs(3600);
    let gateway = gateway(hour, found).await;
    let client = client(&gateway);
    let fresh = HeldLease::read(&lease(hour, hour)).unwrap();
    assert_eq!(call(&client, &wanted(), "k-1", &fresh, PATIENCE).await.unwrap().name, "website");
    let due = HeldLease::read(&lease(hour, hour / 4)).unwrap();
    assert!(due.is_due() && due.until_half_life().is_zero());
    let before = due.text();
    call(&client, &wanted(), "k-2", &due, PATIENCE).await.unwrap();
    assert_ne!(due.text(), before);
    assert!(!due.is_due() && due.until_half_life() > hour / 3);
    give_back(&client, &due).await;
    assert_eq!(called(&gateway), ["db.project.get", "lease.renew", "db.project.get", "lease.revoke"]);
}

#[tokio::test]
async fn call_that_the_gateway_refuses_as_expired_is_made_again_under_the_renewed_lease() {
    let (hour, tries) = (Duration::from_secs(3600), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&tries);
    let gateway = gateway(hour, move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Answer::rejected(policy::DENIED_CODE, policy::Denial::ExpiredLease.to_string()),
        1 => found(),
        _ => Answer::error("there is no such project"),
    })
    .await;
    let (client, held) = (client(&gateway), HeldLease::read(&lease(hour, hour)).unwrap());
    // Without a key, which the scripted gateway takes for one call, also if it was refused.
    let (client, wanted) = (&client, &wanted());
    let send = |text: Option<Arc<str>>| async move { send(client, wanted, None, text.as_deref()).await };
    assert!(!under_lease(client, Some(&held), send).await.unwrap().is_error);
    assert_eq!(called(&gateway), ["db.project.get", "lease.renew", "db.project.get"]);
    let failed = call(client, wanted, "k-1", &held, PATIENCE).await;
    assert!(matches!(&failed, Err(CallFailure::Tool(why)) if why.contains("no such project")), "{failed:?}");
}

#[tokio::test]
async fn error_that_only_reads_like_an_expired_lease_does_not_repeat_a_call() {
    let hour = Duration::from_secs(3600);
    let gateway = gateway(hour, || Answer::rejected(-32_602, policy::Denial::ExpiredLease.to_string())).await;
    let (client, held) = (client(&gateway), HeldLease::read(&lease(hour, hour)).unwrap());
    let refused = call(&client, &wanted(), "k-1", &held, PATIENCE).await;
    assert!(matches!(&refused, Err(CallFailure::Gateway(mcp::Error::Rejected { .. }))), "{refused:?}");
    assert_eq!(called(&gateway), ["db.project.get"]);
}

#[tokio::test]
async fn lease_in_use_is_renewed_again_and_again_without_a_call() {
    let lifetime = Duration::from_millis(400);
    let gateway = gateway(lifetime, found).await;
    let (client, held) = (client(&gateway), HeldLease::read(&lease(Duration::ZERO, lifetime)).unwrap());
    let renewed_thrice =
        eventually("the lease is renewed", async || (called(&gateway).len() >= 3).then_some(()));
    tokio::select! {
        never = keep_renewed(&client, &held) => match never {},
        () = renewed_thrice => {}
    }
    assert!(called(&gateway).iter().all(|name| name == Renew::NAME));
}

/// The clock of the gateway is two hours behind that of the holder.
#[tokio::test]
async fn renewed_lease_lasts_from_its_receipt_whatever_the_clock_of_the_holder_says() {
    let hour = Duration::from_secs(3600);
    let text = move || lease_from(OffsetDateTime::now_utc() - 2 * hour, hour);
    let gateway = gateway_renewing(text, found).await;
    let (client, held) = (client(&gateway), HeldLease::read(&text()).unwrap());
    assert!(held.is_due());
    call(&client, &wanted(), "k-1", &held, PATIENCE).await.unwrap();
    assert!(!held.is_due() && held.until_half_life() > hour / 3);
    call(&client, &wanted(), "k-2", &held, PATIENCE).await.unwrap();
    assert_eq!(called(&gateway), ["lease.renew", "db.project.get", "db.project.get"]);
}

#[tokio::test]
async fn lease_that_is_over_when_it_is_renewed_is_not_renewed_without_a_pause() {
    let gateway = gateway(Duration::ZERO, found).await;
    let (client, held) = (client(&gateway), HeldLease::read(&lease(PATIENCE, Duration::ZERO)).unwrap());
    let renewing = tokio::time::timeout(Duration::from_millis(1500), keep_renewed(&client, &held));
    assert!(renewing.await.is_err());
    assert!(called(&gateway).len() <= 2, "{:?}", called(&gateway));
}
