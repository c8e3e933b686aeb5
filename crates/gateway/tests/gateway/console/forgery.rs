//! Cross-site request forgery.

use super::support::{Gateway, Visitor, form};

/// Every form of the console, with fields that would change something.
const FORMS: [(&str, &[(&str, &str)]); 39] = [
    ("/console/chat", &[("message", "forged")]),
    ("/console/chat/stream", &[("message", "forged")]),
    ("/console/chat/stop", &[("turn", "0197f0a0-0000-7000-8000-000000000001")]),
    ("/console/threads/rename", &[("id", "1"), ("title", "forged")]),
    ("/console/threads/delete", &[("id", "1")]),
    ("/console/workflows/start", &[("id", "1")]),
    ("/console/workflows/resume", &[("id", "1"), ("input", "forged")]),
    ("/console/workflows/pause", &[("id", "1")]),
    ("/console/workflows/cancel", &[("id", "1")]),
    ("/console/workflows/retry", &[("id", "1")]),
    ("/console/jobs/cancel", &[("id", "1")]),
    ("/console/nodes/cordon", &[("id", "1")]),
    ("/console/nodes/drain", &[("id", "1")]),
    ("/console/nodes/uncordon", &[("id", "1")]),
    ("/console/nodes/remove", &[("id", "1")]),
    ("/console/tools/tool", &[("name", "db.project.list"), ("enabled", "false")]),
    ("/console/quarantine/approve", &[("namespace", "a"), ("remote", "b"), ("hash", "c")]),
    ("/console/quarantine/reject", &[("namespace", "a"), ("remote", "b")]),
    ("/console/skills", &[("name", "forged"), ("description", "a"), ("content", "b")]),
    ("/console/skills/skill", &[("id", "1"), ("name", "forged"), ("description", "a"), ("content", "b")]),
    ("/console/skills/delete", &[("id", "1")]),
    ("/console/memory/delete", &[("profile", "default"), ("path", "a")]),
    (
        "/console/schedules",
        &[("name", "forged"), ("expression", "0 9 * * *"), ("prompt", "a"), ("user_id", "b")],
    ),
    ("/console/schedules/edit", &[("id", "1"), ("name", "forged")]),
    ("/console/schedules/run", &[("id", "1")]),
    ("/console/schedules/switch", &[("id", "1"), ("on", "false")]),
    ("/console/schedules/delete", &[("id", "1")]),
    ("/console/tokens", &[("agent", "admin"), ("label", "forged")]),
    ("/console/tokens/revoke", &[("id", "1")]),
    ("/console/leases/revoke", &[("id", "1")]),
    ("/console/servers", &[("namespace", "forged"), ("url", "http://127.0.0.1:9/mcp")]),
    ("/console/servers/switch", &[("namespace", "a"), ("on", "false")]),
    ("/console/servers/refresh", &[("namespace", "a")]),
    ("/console/servers/remove", &[("namespace", "a")]),
    ("/console/servers/server", &[("namespace", "a"), ("concurrency", "1")]),
    ("/console/rules", &[("effect", "deny"), ("tool", "forged.*")]),
    ("/console/rules/move", &[("id", "1"), ("way", "up")]),
    ("/console/settings", &[("key", "forged"), ("value", "1")]),
    ("/console/logout", &[]),
];

async fn nothing_changed(admin: &Visitor<'_>) {
    let tools = admin.get("/console/tools").await;
    assert!(tools.body.contains("aria-checked=\"true\""));
    assert!(!tools.body.contains("aria-checked=\"false\""), "every tool is enabled");
    for page in [
        "/console/threads",
        "/console/schedules",
        "/console/skills",
        "/console/tokens",
        "/console/servers",
        "/console/rules",
        "/console/settings",
    ] {
        let answer = admin.get(page).await;
        assert_eq!(answer.status, 200, "{page}");
        assert!(!answer.shows("forged"), "{page}");
    }
}

#[tokio::test]
async fn form_without_the_csrf_token_changes_nothing() {
    let gateway = Gateway::start().await;
    let (admin, other) = (gateway.administrator().await, gateway.administrator().await);
    for (path, fields) in FORMS {
        for word in ["", "wrong", &other.csrf] {
            let mut sent = fields.to_vec();
            sent.push(("csrf", word));
            let answer = gateway.send("POST", path, &[("Cookie", &admin.cookie)], &form(&sent)).await;
            assert_eq!(answer.status, 403, "{path} with {word:?}");
            assert!(answer.shows("cannot be trusted"), "{path}");
        }
        let answer = gateway.send("POST", path, &[("Cookie", &admin.cookie)], &form(fields)).await;
        assert_eq!(answer.status, 403, "{path} without a token");
    }
    nothing_changed(&admin).await;
}

#[tokio::test]
async fn form_from_another_site_changes_nothing() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let here = gateway.url("");
    for (path, fields) in FORMS {
        let mut fields = fields.to_vec();
        fields.push(("csrf", &admin.csrf));
        for header in [
            ("Origin", "https://evil.example"),
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
        ] {
            let headers = [("Cookie", admin.cookie.as_str()), header];
            let answer = gateway.send("POST", path, &headers, &form(&fields)).await;
            assert_eq!(answer.status, 403, "{path} {header:?}");
        }
    }
    nothing_changed(&admin).await;
    let headers = [("Cookie", admin.cookie.as_str()), ("Origin", &here), ("Sec-Fetch-Site", "same-origin")];
    let fields = form(&[("name", "db.project.list"), ("enabled", "false"), ("csrf", &admin.csrf)]);
    assert_eq!(gateway.send("POST", "/console/tools/tool", &headers, &fields).await.status, 303);
    let login = form(&[("token", &gateway.secret)]);
    let answer = gateway.send("POST", "/console/login", &[("Origin", "https://evil.example")], &login).await;
    assert_eq!((answer.status, answer.header("set-cookie")), (403, None));
}

#[tokio::test]
async fn get_requests_change_nothing() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for (path, fields) in FORMS {
        let mut fields = fields.to_vec();
        fields.push(("csrf", &admin.csrf));
        let answer = admin.get(&format!("{path}?{}", form(&fields))).await;
        assert!([200, 404, 405].contains(&answer.status), "{path}: {}", answer.status);
    }
    assert_eq!(admin.get("/console/audit/verify").await.status, 405);
    nothing_changed(&admin).await;
}

#[tokio::test]
async fn other_host_names_are_refused() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for host in ["evil.example", "127.0.0.1.evil.example:80", ""] {
        for path in ["/", "/console", "/console/login", "/console/tools", "/console/nothing"] {
            let headers = [("Host", host), ("Cookie", admin.cookie.as_str())];
            let answer = gateway.send("GET", path, &headers, "").await;
            assert!(answer.status == 403 || host.is_empty() && answer.status == 400, "{host:?} {path}");
            assert!(!answer.shows("Signed in as"), "{host:?} {path}");
        }
    }
    let headers = [("Host", "localhost:1"), ("Cookie", admin.cookie.as_str())];
    assert_eq!(gateway.send("GET", "/console", &headers, "").await.status, 200);
}
