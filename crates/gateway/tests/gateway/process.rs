//! The gateway as a process: shutdown, configuration reload, invalid settings.

use std::{fs, path::Path, time::Duration};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Process, Tool, binary, eventually, run};
use tokio::task::JoinSet;

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

async fn call(client: &Client, url: &str, bytes: usize) -> StatusCode {
    let arguments = json!({ "x": "y".repeat(bytes) });
    let params = json!({ "name": "help.list", "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = client.post(url).header("content-type", "application/json").body(body.to_string());
    request.send().await.unwrap().status()
}

/// Sizes, hosts and rate limits change at run time; an invalid file is reported, and the previous settings
/// stay in effect.
#[tokio::test]
async fn configuration_is_reloaded_when_it_changes() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, "[mcp]\nmax_body_bytes = 2000\n[strangers]\nper_second = 100000\n").unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data"].map(str::to_owned);
    let mut arguments = arguments.to_vec();
    let text = |path: &Path| path.display().to_string();
    arguments.extend([text(folder.path()), "--config".to_owned(), text(&file)]);
    let process = Process::start(&binary("cynode-gateway"), &arguments, &[], &folder.path().join("log"));
    let url = eventually("the gateway to be ready", async || {
        let said = log(folder.path());
        let ready: Value =
            serde_json::from_str(said.lines().find(|line| line.contains("\"Ready.\""))?).ok()?;
        Some(format!("http://{}/mcp", ready["address"].as_str()?))
    })
    .await;
    let client = Client::builder().no_proxy().build().unwrap();
    assert_eq!(call(&client, &url, 3000).await, StatusCode::PAYLOAD_TOO_LARGE);
    fs::write(&file, "[mcp]\nmax_body_bytes = 9000\n[strangers]\nper_second = 100000\n").unwrap();
    eventually("the new size limit", async || {
        (call(&client, &url, 3000).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    fs::write(&file, "[mcp]\nmax_body_bytes = \"much\"\n").unwrap();
    process.signal(nix::sys::signal::Signal::SIGHUP);
    eventually("the error to be logged", async || {
        log(folder.path()).contains("mcp.max_body_bytes").then_some(())
    })
    .await;
    assert_eq!(
        call(&client, &url, 3000).await,
        StatusCode::UNAUTHORIZED,
        "the previous settings stay in effect"
    );
}

/// SIGTERM: running calls are answered and recorded; new ones are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_are_answered_before_the_gateway_stops() {
    let server = Gateway::start(vec![Tool::new("slow", "", json!({ "type": "object" }), |_| {
        Answer::after(Duration::from_millis(800), Answer::text("done"))
    })])
    .await;
    let mut gateway = GatewayProcess::start().await;
    gateway.install("work", &server.url()).await;
    let manager = gateway.manager().await;
    let params = json!({ "name": "work.slow", "arguments": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(&manager)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_string());
    let mut sent = JoinSet::new();
    sent.spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    eventually("the call to run", async || (server.calls().len() == 1).then_some(())).await;
    gateway.process.terminate();
    let answer = sent.join_next().await.unwrap().unwrap();
    assert!(answer.contains("\"done\""), "{answer}");
    assert!(gateway.process.wait(Duration::from_secs(20)).success());
    gateway.start_again().await;
    assert_eq!(gateway.audit("tool=work.slow").await[0]["status"], "success");
}

/// An invalid setting is reported with its name, its source and the accepted values, and nothing is opened.
#[test]
fn invalid_settings_are_refused_with_the_accepted_values() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, told) in [
        (&["--set", "store.patience=soon"][..], "store.patience (from flag): `soon` is not a duration"),
        (&["--listen", "everywhere"], "mcp.listen (from flag): `everywhere` is not an address"),
        (&["--set", "mcp.hosts=[]"], "mcp.hosts (from flag): name at least one host"),
        (&["--set", "mcp.colour=red"], "`colour` is not a setting here"),
        (&["--store-url", "mysql://x"], "sqlite://<path> or postgres://"),
        (&["--config", "nowhere.toml"], "cannot read the configuration file nowhere.toml"),
    ] {
        let finished = run(&binary("cynode-gateway"), folder.path(), arguments, &[]);
        assert!(finished.code != 0 && finished.stderr.contains(told), "{arguments:?}: {finished:?}");
    }
    let former =
        ["config", "--set", "log.level=debug", "--set", "nats.tls=true", "--set", "strangers.per_second=7"];
    let former = run(&binary("cynode-gateway"), folder.path(), &former, &[]);
    for line in [
        "telemetry.log_level = \"debug\"  # flag",
        "nats.tls.required = true  # flag",
        "unauthenticated.per_second = 7  # flag",
        "# warning: setting log.level is deprecated: use telemetry.log_level",
    ] {
        assert!(former.stdout.contains(line), "{line}: {former:?}");
    }
    let shown = run(
        &binary("cynode-gateway"),
        folder.path(),
        &["config", "--store-url", "postgres://a:secret@b/c"],
        &[],
    );
    assert!(shown.stdout.contains("store.url") && !shown.stdout.contains("secret"), "{shown:?}");
    let checked = run(&binary("cynode-gateway"), folder.path(), &["check"], &[]);
    assert!(checked.code == 0 && checked.stdout.contains("0 rows verified"), "{checked:?}");
}
