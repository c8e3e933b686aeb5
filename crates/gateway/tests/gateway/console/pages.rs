//! What pages show, and to whom.

use serde_json::{Value, json};
use testkit::{Postgres, eventually};

use super::support::{Gateway, PAGES, Wiki};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let login = gateway.get("/console/login").await;
    let style =
        login.body.split("stylesheet\" href=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut paths = PAGES.to_vec();
    paths.extend(["/console/login", "/console/nothing", "/console/logout", &style]);
    for path in paths {
        let answer = admin.get(path).await;
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(answer.header("cross-origin-opener-policy"), Some("same-origin"), "{path}");
        let kept = answer.header("cache-control").unwrap();
        assert_eq!(kept == "no-store", path != style, "{path}: {kept}");
        assert!(!answer.shows(" style=") && !answer.shows("<style") && !answer.shows(" onclick"), "{path}");
    }
}

#[tokio::test]
async fn error_pages_have_the_layout_of_the_console() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for (path, status, said) in [
        ("/console/nothing", 404, "Page not found"),
        ("/console/tools/tool?name=no.such", 404, "Not found"),
        ("/console/audit/row?call=none", 404, "Not found"),
        ("/console/logout", 405, "Method not allowed"),
    ] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.shows(said) && answer.shows("Signed in as"), "{path}");
        assert!(!gateway.get(path).await.shows("Signed in as"), "{path}");
    }
}

#[tokio::test]
async fn users_see_only_their_own_upstreams() {
    let gateway = Gateway::start().await;
    let wiki = Wiki::start("Searches.").await;
    let admin = gateway.administrator().await;
    let secret = admin.issue_user("ada").await;
    let added = admin.post("/console/servers", &[("namespace", "ours"), ("url", &wiki.server.url())]).await;
    assert_eq!(added.status, 303, "{}", added.body);
    let user = gateway.sign_in(&secret).await;
    // Only administrators may install an upstream at an internal address, also on behalf of a user.
    let refused = user.post("/console/servers", &[("namespace", "adas"), ("url", &wiki.server.url())]).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    let fields = [("namespace", "adas"), ("url", &*wiki.server.url()), ("owner", "ada")];
    let added = admin.post("/console/servers", &fields).await;
    assert_eq!(added.status, 303, "{}", added.body);
    for path in ["/console", "/console/tools", "/console/quarantine", "/console/servers"] {
        let page = user.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.shows("adas") || path == "/console", "{path}");
        for foreign in ["db.project", ">ours<", "/console/tokens", "/console/audit", "/console/rules"] {
            assert!(!page.shows(foreign), "{foreign} on {path}");
        }
    }
    for path in [
        "/console/projects",
        "/console/tasks",
        "/console/tasks?view=board",
        "/console/tasks?view=graph",
        "/console/tasks/1",
        "/console/workflows",
        "/console/workflows/1",
        "/console/workflows/1/live",
        "/console/jobs",
        "/console/jobs/1",
        "/console/jobs/1/live",
        "/console/nodes",
        "/console/nodes/live",
        "/console/nodes/node?id=1",
        "/console/skills",
        "/console/skills/new",
        "/console/skills/skill?id=1",
        "/console/memory",
        "/console/memory?profile=default",
        "/console/memory/text?profile=default&path=a",
        "/console/tokens",
        "/console/tokens/new",
        "/console/rules",
        "/console/settings",
        "/console/audit",
        "/console/audit/live",
        "/console/audit/row?call=1",
    ] {
        let answer = user.get(path).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.shows("Only an administrator may"), "{path}");
    }
    assert_eq!(user.get("/console/tools/tool?name=db.project.list").await.status, 404);
    assert_eq!(user.get("/console/servers/server?namespace=ours").await.status, 404);
    for (path, fields) in [
        ("/console/skills", &[("name", "mine"), ("description", "a"), ("content", "b")][..]),
        ("/console/skills/skill", &[("id", "1"), ("name", "mine"), ("content", "b")]),
        ("/console/skills/delete", &[("id", "1")]),
        ("/console/memory/delete", &[("profile", "default"), ("path", "a")]),
        ("/console/workflows/start", &[("id", "1")]),
        ("/console/workflows/cancel", &[("id", "1")]),
        ("/console/workflows/resume", &[("id", "1"), ("input", "yes")]),
        ("/console/jobs/cancel", &[("id", "1")]),
        ("/console/nodes/cordon", &[("id", "1")]),
        ("/console/nodes/remove", &[("id", "1")]),
        ("/console/tokens", &[("agent", "admin"), ("label", "mine")]),
        ("/console/rules", &[("effect", "allow"), ("tool", "db.*")]),
        ("/console/settings", &[("key", "mine"), ("value", "1")]),
        ("/console/audit/verify", &[]),
    ] {
        assert_eq!(user.post(path, fields).await.status, 403, "{path}");
    }
    let removed = user.post("/console/servers/remove", &[("namespace", "ours")]).await;
    assert_eq!(removed.status, 303);
    assert!(admin.get("/console/servers").await.shows(">ours<"));
}

#[tokio::test]
async fn untrusted_text_is_escaped() {
    let gateway = Gateway::start().await;
    let wiki = Wiki::start(EVIL).await;
    let admin = gateway.administrator().await;
    admin.issue(&[("agent", "user"), ("label", EVIL), ("user_id", "ada")]).await;
    let fields = [("effect", "deny"), ("tool", "<b>*"), ("note", EVIL)];
    assert_eq!(admin.post("/console/rules", &fields).await.status, 303);
    let value = serde_json::json!(EVIL).to_string();
    assert_eq!(admin.post("/console/settings", &[("key", "<i>"), ("value", &value)]).await.status, 303);
    let added = admin
        .post("/console/servers", &[("namespace", "wiki"), ("url", &wiki.server.url()), ("prefix", "on")])
        .await;
    assert_eq!(added.status, 303);
    let sandbox = [("agent", "sandbox"), ("label", EVIL), ("user_id", "<b>ada</b>"), ("task_id", "<i>'\"")];
    let agent = gateway.agent(&admin.issue(&sandbox).await);
    agent.call("<img src=x onerror=alert(3)>").await.unwrap_err();
    let more = ["/console/tools/tool?name=wiki.search", "/console/audit?tool=%22%3E%3Cscript%3Ealert(4)"];
    for path in PAGES.into_iter().chain(more) {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        for evil in ["<script>alert", "<img src=x", "<b>ada", "<i>", "\"><script>"] {
            assert!(!page.shows(evil), "{evil} on {path}");
        }
    }
    assert!(admin.get("/console/tokens").await.shows("&lt;script&gt;alert(1)"));
    assert!(admin.get("/console/audit").await.shows("&lt;b&gt;ada&lt;/b&gt;"));
    assert!(admin.get("/console/quarantine").await.shows("&lt;script&gt;alert(1)"));
    // Error messages are escaped too, including the submitted values.
    let answer = admin.post("/console/servers", &[("namespace", EVIL), ("url", EVIL)]).await;
    assert_eq!(answer.status, 422);
    assert!(!answer.shows("<script>alert") && answer.shows("&lt;script&gt;alert(1)"));
}

#[tokio::test]
async fn invalid_field_is_named_and_input_is_kept() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for (path, fields, wrong, kept) in [
        (
            "/console/tokens",
            &[("agent", "sandbox"), ("label", "kept label"), ("user_id", "ada")][..],
            "task_id-wrong",
            "value=\"kept label\"",
        ),
        (
            "/console/tokens",
            &[("agent", "admin"), ("label", "a"), ("lives", "soon")],
            "lives-wrong",
            "value=\"soon\"",
        ),
        (
            "/console/servers",
            &[("namespace", "Wiki"), ("url", "http://a.b/mcp")],
            "namespace-wrong",
            "http://a.b/mcp",
        ),
        ("/console/servers", &[("namespace", "wiki"), ("url", "ftp://a")], "url-wrong", "value=\"wiki\""),
        ("/console/rules", &[("tool", "db.*.x"), ("note", "kept note")], "tool-wrong", "kept note"),
        ("/console/settings", &[("key", "kept.key"), ("value", "text")], "value-wrong", "value=\"kept.key\""),
    ] {
        let answer = admin.post(path, fields).await;
        assert_eq!(answer.status, 422, "{path}");
        assert!(answer.shows(&format!("id=\"{wrong}\"")) && answer.shows("aria-invalid=\"true\""), "{path}");
        assert!(answer.shows(kept) && answer.shows("role=\"alert\""), "{path}");
    }
}

#[tokio::test]
async fn secret_is_shown_once() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let secret = admin.issue_manager().await;
    assert!(secret.starts_with("cyn_"));
    for path in PAGES {
        assert!(!admin.get(path).await.shows(&secret), "{path}");
    }
}

#[tokio::test]
async fn leases_are_listed_shown_and_revoked() {
    // Nothing can be published.
    let gateway = super::work::gateway_with_nats("nats://127.0.0.1:1").await;
    let admin = gateway.administrator().await;
    assert!(admin.get("/console/leases").await.shows("No matching leases."));
    // Losing the race against another test is fine: a provider is installed then.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::new();
    let wanted = json!({ "agent": "project_analyst", "user_id": "ada", "task_id": "t-1",
        "tools": ["db.task.get"] });
    let request = client.post(gateway.url("/api/v1/leases")).bearer_auth(&gateway.secret);
    let answered = request.body(wanted.to_string()).header("content-type", "application/json").send().await;
    let issued: Value = serde_json::from_str(&answered.unwrap().text().await.unwrap()).unwrap();
    let (id, signed) = (issued["id"].as_str().unwrap(), issued["signed"].as_str().unwrap());
    let page = format!("/console/leases/lease?id={id}");
    for (path, texts) in [
        ("/console/leases", ["ada", "t-1", "Active"]),
        ("/console/leases?state=active&user_id=ada", ["ada", "t-1", "Active"]),
        (&*page, ["db.task.get", "Project analyst", "Revoke this lease"]),
    ] {
        let answer = admin.get(path).await;
        assert!(
            texts.iter().all(|text| answer.shows(text)) && !answer.shows(signed),
            "{path}: {}",
            answer.body
        );
    }
    assert!(!admin.get("/console/leases?user_id=eve").await.shows("t-1"));
    assert_eq!(admin.post("/console/leases/revoke", &[("id", id)]).await.status, 303);
    let answer = admin.get(&page).await;
    assert!(answer.shows("Revoked") && !answer.shows("Revoke this lease"), "{}", answer.body);
    assert_eq!(admin.get("/console/leases/lease?id=none").await.status, 404);
    assert!(admin.get("/console").await.shows("1 message waits to be published on NATS"));
}

#[tokio::test]
async fn rules_are_reordered() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for tool in ["first.tool", "second.tool"] {
        assert_eq!(admin.post("/console/rules", &[("effect", "deny"), ("tool", tool)]).await.status, 303);
    }
    let order = async || {
        let page = admin.get("/console/rules").await.body;
        page.find("first.tool").unwrap() < page.find("second.tool").unwrap()
    };
    assert!(order().await);
    let page = admin.get("/console/rules").await.body;
    let id = page.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    admin.post("/console/rules/move", &[("id", &id), ("way", "down")]).await;
    assert!(!order().await);
    admin.post("/console/rules/move", &[("id", &id), ("way", "down")]).await;
    assert!(!order().await, "the last rule cannot move down");
    admin.post("/console/rules/remove", &[("id", &id)]).await;
    assert!(!admin.get("/console/rules").await.shows("first.tool"));
}

#[tokio::test]
async fn settings_are_toggled_set_and_deleted() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let is_on = |key: &str| format!("aria-checked=\"true\" aria-label=\"{key}\"");
    let switch = "sandbox.allowed_images.agents_may_add";
    assert!(!admin.get("/console/settings").await.shows(&is_on(switch)));
    admin.post("/console/settings", &[("key", switch), ("value", "true"), ("version", "0")]).await;
    assert!(admin.get("/console/settings").await.shows(&is_on(switch)));
    // A concurrent change is not overwritten.
    admin.post("/console/settings", &[("key", switch), ("value", "false"), ("version", "0")]).await;
    assert!(admin.get("/console/settings").await.shows(&is_on(switch)));
    admin.post("/console/settings", &[("key", "team.language"), ("value", "\"en\"")]).await;
    assert!(admin.get("/console/settings").await.shows("team.language"));
    admin.post("/console/settings/delete", &[("key", "team.language"), ("version", "1")]).await;
    assert!(!admin.get("/console/settings").await.shows("<code>team.language"));
    // G13: the switches of memory profiles. Only that of the profile `default` is always there.
    let (usual, own) = ("profile.default.network", "profile.team-a.network");
    assert!(admin.get("/console/settings").await.shows(&is_on(usual)));
    let wrong = admin.post("/console/settings", &[("key", "profile.team-a"), ("value", "true")]).await;
    assert!(wrong.shows("must be profile.NAME.network"), "{}", wrong.body);
    admin.post("/console/settings", &[("key", own), ("value", "true")]).await;
    assert!(admin.get("/console/settings").await.shows(&is_on(own)));
    admin.post("/console/settings/delete", &[("key", own), ("version", "1")]).await;
    assert!(!admin.get("/console/settings").await.shows(&is_on(own)));
}

#[tokio::test]
async fn the_audit_is_verified_and_filtered() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let agent = gateway.agent(&admin.issue_manager().await);
    agent.call("db.project.list").await.unwrap();
    agent.call("db.project.nothing").await.unwrap_err();
    let denied = admin.get("/console/audit?decision=deny&tool=db.*").await;
    assert!(denied.shows("db.project.nothing") && !denied.shows("db.project.list<"));
    assert!(admin.get("/console/audit?since=2100-01-01T00%3A00").await.shows("Nothing yet"));
    let call = denied.body.split("/console/audit/row?call=").nth(1).unwrap().split('"').next().unwrap();
    let row = admin.get(&format!("/console/audit/row?call={call}")).await;
    assert!(row.shows("db.project.nothing") && row.shows("Hash of the row"));
    let verified = admin.post("/console/audit/verify", &[]).await;
    assert_eq!(verified.header("location"), Some("/console/audit"));
    assert!(admin.get("/console").await.shows("Chain intact"));
}

/// When the store fails, the pages say so.
#[tokio::test]
async fn pages_report_an_unavailable_postgres() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let gateway = Gateway::start_with(&["--store-url", &url, "--set", "store.patience=3s"]).await;
    let admin = gateway.administrator().await;
    assert_eq!(admin.get("/console").await.status, 200);
    postgres.kill();
    let answer = admin.get("/console/tools").await;
    assert_eq!(answer.status, 503);
    assert!(answer.shows("Not available at the moment"), "{}", answer.body);
    postgres.start_again();
    eventually("the console to be back", async || (admin.get("/console").await.status == 200).then_some(()))
        .await;
}
