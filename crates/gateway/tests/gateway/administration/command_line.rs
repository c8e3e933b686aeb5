//! cynodectl against a running gateway.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use testkit::GatewayProcess;

use super::support::{bare_ctl, ctl, offer, offered, parsed, seen, store};

const FAILED: i32 = 1;
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;

#[tokio::test]
async fn tools_and_tokens_are_managed() {
    let gateway = GatewayProcess::start().await;
    let file = gateway.folder().join("pm.token");
    let path = file.display().to_string();
    let issued =
        ctl(&gateway, &["tokens", "issue", "project_manager", "--label", "pm", "--out", &path]).await;
    assert_eq!(issued.code, 0, "{issued:?}");
    let secret = std::fs::read_to_string(&file).expect("the secret").trim().to_owned();
    assert!(secret.starts_with("cyn_") && !issued.stdout.contains(&secret), "{issued:?}");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let again = ctl(&gateway, &["tokens", "issue", "project_manager", "--label", "pm", "--out", &path]).await;
    assert_eq!(again.code, USAGE, "an existing file is not overwritten: {again:?}");
    let agent = gateway.agent(&secret);
    assert!(seen(&agent).await.contains(&"db.project.list".to_owned()));

    let shown = ctl(
        &gateway,
        &["--json", "tokens", "issue", "sandbox", "--label", "s", "--user", "u", "--task", "t"],
    )
    .await;
    assert!(
        parsed(&shown)["secret"].as_str().expect("a secret that is shown once").starts_with("cyn_"),
        "{shown:?}"
    );
    let unused = gateway.folder().join("unused").display().to_string();
    let wrong =
        ctl(&gateway, &["tokens", "issue", "sandbox", "--task", "t", "--label", "s", "--out", &unused]).await;
    assert_eq!(wrong.code, USAGE, "{wrong:?}");
    assert!(wrong.stderr.contains("user_id") && !std::path::Path::new(&unused).exists(), "{wrong:?}");

    let listed = ctl(&gateway, &["tools", "list"]).await;
    assert!(listed.stdout.contains("TOOL") && listed.stdout.contains("db.project.list"), "{listed:?}");
    let off = ctl(&gateway, &["tools", "disable", "db.project.list"]).await;
    assert_eq!((off.code, off.stdout.trim()), (0, "db.project.list is off, for pm"));
    assert!(!seen(&agent).await.contains(&"db.project.list".to_owned()));
    assert_eq!(ctl(&gateway, &["tools", "enable", "db.project.list"]).await.code, 0);
    let scoped = ctl(&gateway, &["--json", "tools", "scope", "db.project.list", "sandbox"]).await;
    assert_eq!(parsed(&scoped)["scope"], "sandbox");
    assert!(ctl(&gateway, &["tools", "show", "db.project.get"]).await.stdout.contains("project_id"));

    let tokens = ctl(&gateway, &["tokens", "list"]).await;
    assert!(tokens.stdout.contains("first administrator") && !tokens.stdout.contains("cyn_"), "{tokens:?}");
    let id = parsed(&shown)["id"].as_str().expect("an id").to_owned();
    assert!(ctl(&gateway, &["tokens", "revoke", &id]).await.stdout.contains("is revoked"));
    let revoked = ctl(&gateway, &["--json", "tokens", "list", "--state", "revoked"]).await;
    assert_eq!(parsed(&revoked)["id"], *id);
}

#[tokio::test]
async fn upstreams_and_their_tools_are_managed() {
    let gateway = GatewayProcess::start().await;
    assert!(ctl(&gateway, &["upstreams", "list"]).await.stdout.contains("no upstreams"));
    assert!(ctl(&gateway, &["tools", "quarantine"]).await.stdout.contains("no tool waits"));
    let added =
        ctl(&gateway, &["upstreams", "add", "notes", "--url", "http://127.0.0.1:1/mcp", "--scope", "pm"])
            .await;
    assert_eq!(added.code, 0, "{added:?}");
    assert!(added.stderr.contains("could not be listed yet"), "{added:?}");
    let hash =
        offer(&store(&gateway).await, "notes", "find", None, &offered("find", "Finds.\u{1b}[2J")).await;
    let waiting = ctl(&gateway, &["tools", "quarantine"]).await;
    assert!(waiting.stdout.contains("notes.find") && waiting.stdout.contains("new"), "{waiting:?}");
    let diff = ctl(&gateway, &["tools", "diff", "notes.find"]).await;
    assert!(diff.stdout.contains("+  \"description\"") && !diff.stdout.contains('\u{1b}'), "{diff:?}");
    let unasked = ctl(&gateway, &["tools", "approve", "notes.find"]).await;
    assert_eq!(unasked.code, FAILED, "there is no terminal to confirm on: {unasked:?}");
    let stale = ctl(&gateway, &["tools", "approve", "notes.find", "--hash", "other"]).await;
    assert_eq!(stale.code, FAILED, "{stale:?}");
    assert_eq!(ctl(&gateway, &["tools", "approve", "notes.find", "--hash", &hash]).await.code, 0);
    assert_eq!(ctl(&gateway, &["tools", "reject", "notes/find"]).await.code, 0);
    assert_eq!(ctl(&gateway, &["tools", "approve", "notes.find", "--yes"]).await.code, 0);
    assert_eq!(
        ctl(&gateway, &["tools", "diff", "notes.find"]).await.code,
        FAILED,
        "the tool is no longer quarantined"
    );

    let listed = ctl(&gateway, &["upstreams", "list"]).await;
    assert!(
        listed.stdout.contains("notes") && listed.stdout.contains("http://127.0.0.1:1/mcp"),
        "{listed:?}"
    );
    assert_eq!(parsed(&ctl(&gateway, &["--json", "upstreams", "disable", "notes"]).await)["enabled"], false);
    assert!(ctl(&gateway, &["upstreams", "enable", "notes"]).await.stdout.contains("1 approved"));
    assert_eq!(ctl(&gateway, &["upstreams", "show", "nothing"]).await.code, FAILED);
    assert_ne!(ctl(&gateway, &["upstreams", "refresh", "notes"]).await.code, 0);
    let program = ["upstreams", "add", "local-notes", "--env", "A=b", "--", "/bin/false", "--flag"];
    let added = ctl(&gateway, &program).await;
    assert!(added.stdout.contains("/bin/false --flag"), "{added:?}");
    assert_eq!(
        ctl(&gateway, &["upstreams", "remove", "notes"]).await.code,
        FAILED,
        "there is no terminal to confirm on"
    );
    assert_eq!(ctl(&gateway, &["upstreams", "remove", "notes", "--yes"]).await.code, 0);
    assert_eq!(ctl(&gateway, &["tools", "show", "notes.find"]).await.code, FAILED);
}

#[tokio::test]
async fn rules_and_settings_are_managed() {
    let gateway = GatewayProcess::start().await;
    assert!(ctl(&gateway, &["rules", "list"]).await.stdout.contains("no rules"));
    let line = [
        "--json",
        "rules",
        "add",
        "deny",
        "web.*",
        "--argument",
        "/url",
        "--matches",
        "http://*",
        "--note",
        "no",
    ];
    let added = parsed(&ctl(&gateway, &line).await);
    let listed = ctl(&gateway, &["rules", "list"]).await;
    assert!(listed.stdout.contains("http://*"), "{listed:?}");
    let id = added["id"].as_str().expect("an id");
    assert_eq!(ctl(&gateway, &["rules", "remove", id]).await.code, 0);
    assert_eq!(ctl(&gateway, &["rules", "remove", id]).await.code, FAILED);
    assert_eq!(ctl(&gateway, &["rules", "add", "maybe", "web.*"]).await.code, USAGE);

    let switch = "sandbox.allowed_images.agents_may_add";
    assert!(ctl(&gateway, &["settings", "list"]).await.stdout.contains(switch));
    let set = parsed(&ctl(&gateway, &["--json", "settings", "set", switch, "true"]).await);
    assert_eq!((&set["value"], &set["version"]), (&json!(true), &json!(1)));
    let text = parsed(&ctl(&gateway, &["--json", "settings", "set", "motto", "go slow"]).await);
    assert_eq!(text["value"], "go slow");
    assert_eq!(ctl(&gateway, &["settings", "set", "motto", "1", "--version", "7"]).await.code, FAILED);
    assert!(ctl(&gateway, &["settings", "get", "motto"]).await.stdout.contains("go slow"));
    assert_eq!(ctl(&gateway, &["settings", "delete", "motto"]).await.code, 0);
    assert_eq!(ctl(&gateway, &["settings", "get", "motto"]).await.code, FAILED);
}

#[tokio::test]
async fn preferences_are_set_listed_and_deleted() {
    let gateway = GatewayProcess::start().await;
    let key = "agents.project_analyst.model_routing.prefer_local";
    let at = ["--scope", "project", "--scope-id", "p-1"];
    let line = |words: &[&'static str]| [words, &at[..]].concat();
    let set = parsed(&ctl(&gateway, &line(&["--json", "preferences", "set", key, "true"])).await);
    assert_eq!((&set["value"], &set["version"], &set["scope_id"]), (&json!(true), &json!(1), &json!("p-1")));
    let stale = line(&["preferences", "set", key, "false", "--version", "7"]);
    assert_eq!(ctl(&gateway, &stale).await.code, FAILED);
    let listed = ctl(&gateway, &["preferences", "list", "--scope", "project"]).await;
    assert!(listed.stdout.contains(key) && listed.stdout.contains("p-1"), "{listed:?}");
    assert!(!ctl(&gateway, &["preferences", "list", "--scope", "user"]).await.stdout.contains(key));
    assert_eq!(ctl(&gateway, &line(&["preferences", "delete", key])).await.code, 0);
    assert_eq!(ctl(&gateway, &line(&["preferences", "delete", key])).await.code, FAILED);
    assert_eq!(ctl(&gateway, &["preferences", "set", key, "true"]).await.code, USAGE);
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let gateway = GatewayProcess::start().await;
    let with = |url: &str, file: &str, command: &[&str]| {
        let mut line =
            vec!["--gateway".to_owned(), url.to_owned(), "--admin-token-file".to_owned(), file.to_owned()];
        line.extend(command.iter().map(|&word| word.to_owned()));
        bare_ctl(line)
    };
    let (url, file) = (gateway.admin_url(), gateway.admin_token_file().display().to_string());
    let wrong = gateway.folder().join("wrong");
    std::fs::write(&wrong, "cyn_wrong\n").expect("a file");
    let wrong = wrong.display().to_string();
    for (url, file, code, said) in [
        ("http://127.0.0.1:1", &file, UNAVAILABLE, "start cynode-gateway"),
        ("nonsense", &file, USAGE, "invalid gateway URL"),
        (&url, &"/nowhere/token".to_owned(), USAGE, "/nowhere/token"),
        (&url, &wrong, USAGE, "invalid admin token"),
    ] {
        let finished = with(url, file, &["tools", "list"]).await;
        assert_eq!(finished.code, code, "{finished:?}");
        assert!(finished.stderr.contains(said), "{finished:?}");
    }
    let nothing = bare_ctl(vec!["--gateway".to_owned(), url, "tools".to_owned(), "list".to_owned()]).await;
    assert_eq!(nothing.code, USAGE, "{nothing:?}");
    assert!(nothing.stderr.contains("--admin-token-file"), "{nothing:?}");
    assert_eq!(ctl(&gateway, &["tools", "show", "nothing"]).await.code, FAILED);
    assert_eq!(ctl(&gateway, &["tools", "scope", "db.project.list", "all"]).await.code, USAGE);
}
