//! `check` of each program: one line per check, what to do about those that fail, and no end at the first.

use std::path::Path;

use testkit::{Finished, GatewayProcess, Nats, OrchestratorBuilder, Worker, binary, run, workspace};

const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const NOWHERE: &str = "127.0.0.1:1";

async fn check(program: &'static str, folder: &Path, more: &[String]) -> Finished {
    let folder = folder.to_owned();
    let arguments: Vec<String> = std::iter::once("check".to_owned()).chain(more.iter().cloned()).collect();
    tokio::task::spawn_blocking(move || run(&binary(program), &folder, &arguments, &[])).await.unwrap()
}

fn set(key: &str, value: impl std::fmt::Display) -> String {
    format!("--set={key}={value}")
}

/// Asserts that each line but the last is one check, and returns those with this mark.
#[track_caller]
fn lines<'f>(finished: &'f Finished, mark: &str) -> Vec<&'f str> {
    let (checks, _) = finished.stdout.trim_end().rsplit_once('\n').unwrap();
    for line in checks.lines() {
        let known = ["ok   ", "note ", "skip ", "FAIL "].iter().any(|mark| line.starts_with(mark));
        assert!(known, "{line}: {finished:?}");
    }
    checks.lines().filter(|line| line.starts_with(mark)).collect()
}

#[tokio::test]
async fn worker_that_would_start_passes_and_one_that_would_not_says_everything_that_is_missing() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    drop(Worker::manager(&nats).start().await);
    let token = gateway.folder().join("manager.token");
    std::fs::write(&token, gateway.manager().await).unwrap();
    let root = set("instructions.root", workspace().join("instructions").display());
    let role = "--role=project_manager".to_owned();
    let good = [
        role.clone(),
        root.clone(),
        set("nats.url", nats.url()),
        set("gateway.url", gateway.url()),
        set("gateway.token_file", token.display()),
    ];
    let passed = check("cynode-pma", gateway.folder(), &good).await;
    assert_eq!(passed.code, 0, "{passed:?}");
    assert!(lines(&passed, "FAIL").is_empty() && passed.stdout.ends_with("all good\n"), "{passed:?}");
    let names: Vec<&str> =
        lines(&passed, "ok").iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, ["role", "bundle", "nats", "streams", "model", "gateway"], "{passed:?}");

    let bad = [
        role.clone(),
        root,
        set("nats.url", format!("nats://{NOWHERE}")),
        set("gateway.url", format!("http://{NOWHERE}/mcp")),
        set("inference.base_url", format!("http://{NOWHERE}/v1")),
        set("inference.model", "m"),
    ];
    let failed = check("cynode-pma", gateway.folder(), &bad).await;
    assert_eq!((failed.code, failed.stderr.as_str()), (UNAVAILABLE, ""), "{failed:?}");
    for (line, (name, to_do)) in lines(&failed, "FAIL").into_iter().zip([
        ("nats", "Start nats-server"),
        ("model", "Start the model server"),
        ("gateway", "Start cynode-gateway"),
    ]) {
        assert!(line.contains(name) && line.contains(to_do), "{line}");
    }
    assert!(failed.stdout.ends_with("3 checks failed: nats, model, gateway\n"), "{failed:?}");
    assert_eq!(lines(&failed, "skip"), ["skip streams  not checked: they need NATS"]);

    let wrong = check("cynode-pma", gateway.folder(), &[role, set("instructions.root", "nowhere")]).await;
    assert_eq!(wrong.code, USAGE, "a wrong setting, though NATS is away too: {wrong:?}");
}

#[tokio::test]
async fn checks_of_the_other_programs_look_the_same() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let _orchestrator = OrchestratorBuilder::new(&nats, &gateway).await.start().await;
    let token = gateway.folder().join("orchestrator.token");
    std::fs::write(&token, gateway.unbound("orchestrator").await).unwrap();
    let place = tempfile::tempdir().unwrap();
    let (url, token) = (set("gateway.url", gateway.url()), set("gateway.token_file", token.display()));
    let there = [url, token.clone(), set("nats.url", nats.url())];
    let passed = check("cynode-orchestrator", place.path(), &there).await;
    assert_eq!((passed.code, lines(&passed, "ok").len()), (0, 2), "{passed:?}");
    let away = [
        set("gateway.url", format!("http://{NOWHERE}/mcp")),
        token,
        set("nats.url", format!("nats://{NOWHERE}")),
    ];
    let failed = check("cynode-orchestrator", place.path(), &away).await;
    assert_eq!(failed.code, UNAVAILABLE, "{failed:?}");
    assert!(failed.stdout.ends_with("2 checks failed: nats, gateway\n"), "{failed:?}");
    let failed = check("cynode-node", place.path(), &away).await;
    assert_eq!(failed.code, UNAVAILABLE, "{failed:?}");
    assert!(failed.stdout.contains("nats, gateway\n") && lines(&failed, "FAIL").len() >= 2, "{failed:?}");

    let data = set("data", place.path().join("data").display());
    let passed = check("cynode-gateway", place.path(), &[data.clone(), set("nats.url", nats.url())]).await;
    let named = |finished: &Finished, name: &str| finished.stdout.contains(&format!("ok   {name}"));
    assert_eq!(passed.code, 0, "{passed:?}");
    assert!(["store", "audit", "nats"].iter().all(|name| named(&passed, name)), "{passed:?}");
    let away = set("nats.url", format!("nats://{NOWHERE}"));
    let alone = check("cynode-gateway", place.path(), &[data, away]).await;
    assert_eq!((alone.code, lines(&alone, "note").len()), (0, 1), "a gateway starts without: {alone:?}");
}
