//! Signing in and out.

use futures_util::future::join_all;
use testkit::eventually;

use super::support::{Gateway, form};

#[tokio::test]
async fn cookies_have_the_security_attributes() {
    for (settings, secure) in [(&[][..], false), (&["--set", "admin.https=true"][..], true)] {
        let gateway = Gateway::start_with(settings).await;
        let fields = form(&[("token", &gateway.secret)]);
        let answer = gateway.send("POST", "/console/login", &[], &fields).await;
        let cookie = answer.header("set-cookie").unwrap();
        for flag in ["; HttpOnly", "; SameSite=Strict", "; Path=/console;", "; Max-Age=43200;"] {
            assert!(cookie.contains(flag), "{cookie}");
        }
        assert_eq!(cookie.contains("; Secure"), secure, "{cookie}");
    }
}

#[tokio::test]
async fn unauthenticated_visitor_is_sent_to_the_login_and_back() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.get("/").await.header("location"), Some("/console"));
    let sent = gateway.get("/console/tools?text=a%20b").await;
    assert_eq!(sent.status, 303);
    let login = sent.header("location").unwrap();
    assert_eq!(login, "/console/login?next=%2Fconsole%2Ftools%3Ftext%3Da%2520b");
    let page = gateway.get(login).await;
    assert!(page.shows("value=\"/console/tools?text=a%20b\"") && page.shows("admin.token"), "{}", page.body);
    let fields = form(&[("token", &gateway.secret), ("next", "/console/tools?text=a%20b")]);
    let entered = gateway.send("POST", "/console/login", &[], &fields).await;
    assert_eq!(entered.header("location"), Some("/console/tools?text=a%20b"));
    // A link to another site is not followed.
    let fields = form(&[("token", &gateway.secret), ("next", "https://evil.example/console")]);
    let entered = gateway.send("POST", "/console/login", &[], &fields).await;
    assert_eq!(entered.header("location"), Some("/console"));
}

#[tokio::test]
async fn session_expires() {
    let gateway = Gateway::start_with(&["--set", "admin.session=2s"]).await;
    let visitor = gateway.administrator().await;
    assert_eq!(visitor.get("/console/audit").await.status, 200);
    let sent = eventually("the session to expire", async || {
        let answer = visitor.get("/console/audit?decision=deny").await;
        (answer.status == 303).then_some(answer)
    })
    .await;
    let login = sent.header("location").unwrap();
    assert_eq!(login, "/console/login?next=%2Fconsole%2Faudit%3Fdecision%3Ddeny&ended=1");
    assert!(gateway.get(login).await.shows("Your session has expired"));
    // A submitted change is not applied, and the login leads back to a page.
    let posted = visitor.post("/console/rules/remove", &[("id", "1")]).await;
    assert_eq!(posted.header("location"), Some("/console/login?next=%2Fconsole%2Frules&ended=1"));
}

#[tokio::test]
async fn sign_out_ends_the_session() {
    let gateway = Gateway::start().await;
    let (one, other) = (gateway.administrator().await, gateway.administrator().await);
    let out = one.post("/console/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, Some("/console/login")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(one.get("/console").await.status, 303);
    assert_eq!(other.get("/console").await.status, 200);
    let audit = other.get("/console/audit").await;
    assert!(audit.shows("admin.console.sign_in") && audit.shows("admin.console.sign_out"));
}

#[tokio::test]
async fn revoked_token_ends_its_sessions_at_once() {
    let gateway = Gateway::start().await;
    let first = gateway.administrator().await;
    let secret = first.issue(&[("agent", "admin"), ("label", "second")]).await;
    let second = gateway.sign_in(&secret).await;
    assert_eq!(second.get("/console/tokens").await.status, 200);
    let tokens = first.get("/console/tokens").await.body;
    let id = tokens.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(first.post("/console/tokens/revoke", &[("id", id)]).await.status, 303);
    let sent = second.get("/console/tokens").await;
    assert_eq!(sent.header("location"), Some("/console/login?next=%2Fconsole%2Ftokens&ended=1"));
    // Also for a client that only follows the audit.
    let third = gateway.sign_in(&first.issue(&[("agent", "admin"), ("label", "third")]).await).await;
    let tokens = first.get("/console/tokens").await.body;
    let id = tokens.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let revoke = async {
        // The stream is certainly open once a first row arrived.
        for _ in 0..5 {
            first.get("/console/audit").await;
        }
        first.post("/console/tokens/revoke", &[("id", id)]).await
    };
    let (watched, _) = tokio::join!(third.get("/console/audit/live?after=0"), revoke);
    assert!(watched.status == 200 && watched.shows("data: <tr"), "{}", watched.body);
    // An administrator's own token cannot be revoked by accident.
    assert!(first.get("/console/tokens").await.shows("You are signed in with it"));
}

#[tokio::test]
async fn failed_sign_ins_reveal_nothing_and_are_rate_limited() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let agents = admin.issue_manager().await;
    let expired = admin.issue(&[("agent", "admin"), ("label", "short"), ("lives", "1s")]).await;
    eventually("the short-lived token to expire", async || {
        admin.get("/console/tokens?state=expired").await.shows(">short<").then_some(())
    })
    .await;
    let mut said = Vec::new();
    for secret in ["cyn_wrong", "", &agents, &expired] {
        let answer = gateway.send("POST", "/console/login", &[], &form(&[("token", secret)])).await;
        assert_eq!(answer.status, 403);
        assert!(answer.header("set-cookie").is_none());
        said.push(answer.body);
    }
    said.dedup();
    assert_eq!(said.len(), 1, "all refusals read alike");
    let fields = form(&[("token", "cyn_wrong")]);
    let many = join_all((0..40).map(|_| gateway.send("POST", "/console/login", &[], &fields))).await;
    let limited = many.iter().filter(|answer| answer.status == 429).count();
    assert!(limited >= 15, "{limited} of 40 were told to wait");
}
