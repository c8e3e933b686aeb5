//! Secrets of many formats are put into every input, with all logs at their most verbose level. None of them
//! appears in a log, although each of these places logs something.

use std::{fs, path::Path, time::Duration};

use async_nats::HeaderMap;
use serde_json::{Value, json};
use subjects::{Encoding, Kind, headers};
use tempfile::TempDir;
use testkit::{
    Finished, GatewayProcess, Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, binary, chat,
    eventually, run,
};

/// Part of every secret here, and of nothing else.
const MARK: &str = "Zq7Xw2Pv9Kt4";
const MARK_BASE32: &str = "ZQ7XW2PVKT4A";
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// One of each format that can be recognised.
fn shaped() -> Vec<String> {
    let body = format!("{MARK}{MARK}{MARK}");
    let base32 = MARK_BASE32.repeat(5);
    vec![
        format!("cyn_{body}"),
        format!("sk-{body}"),
        format!("ghp_{body}"),
        format!("AIza{body}"),
        format!("xoxb-{body}"),
        format!("AKIA{}", MARK_BASE32.repeat(2)),
        format!("SU{}", &base32[..56]),
        format!("eyJhbGciOiJlZDI1NTE5In0.{body}.{body}"),
        format!("Bearer {body}"),
        format!("Authorization: Basic {body}"),
        format!("password={body}"),
        format!("{{\"api_key\":\"{body}\"}}"),
        format!("nats://user:{body}@somewhere:4222"),
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n{body}\n-----END PRIVATE KEY-----"),
    ]
}

/// All of them in one text.
fn all() -> String {
    shaped().join(" ; ")
}

#[track_caller]
fn holds_none(what: &str, log: &str) {
    for line in log.lines() {
        assert!(!line.contains(MARK) && !line.contains(MARK_BASE32), "{what} logs a secret:\n{line}");
    }
}

/// Checks that the log contains these messages; otherwise the absence of secrets would prove nothing.
#[track_caller]
fn says(log: &str, messages: &[&str]) {
    for message in messages {
        assert!(log.contains(message), "nothing about `{message}` in:\n{log}");
    }
}

struct Stage {
    nats: Nats,
    /// URL with a password.
    url: String,
    folder: TempDir,
    format: &'static str,
}

fn with_password(nats: &Nats) -> String {
    nats.url().replace("://", &format!("://worker:{MARK}of-the-server@"))
}

impl Stage {
    fn set(format: &'static str) -> Self {
        let nats = Nats::start();
        let url = with_password(&nats);
        Self { nats, url, folder: tempfile::tempdir().unwrap(), format }
    }

    fn secret_file(&self, name: &str, secret: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, secret).unwrap();
        path.display().to_string()
    }

    fn worker(&self) -> WorkerBuilder {
        let worker = Worker::manager_at(&self.url);
        worker.set("telemetry.log_format", self.format).set("telemetry.log_level", "trace")
    }

    async fn orchestrator(&self) -> Orchestrator {
        Orchestrator::connect(&self.nats).await
    }
}

/// G11: bodies, headers, subjects, a model server that quotes its request, and a server that expects another
/// password.
async fn check_worker_log(format: &'static str) {
    let stage = Stage::set(format);
    let token = format!("{MARK}of-any-shape");
    let quoting = format!("not with {token}, {}", all());
    let model = Model::start([Script::Refuse(500, quoting)]).await;
    let worker = stage.worker().asking(&model).set("inference.tries", "2");
    let worker = worker.set("inference.token_file", stage.secret_file("model.token", &token)).start().await;
    let orchestrator = stage.orchestrator().await;
    // Refused input: not a handoff, half of one, one of another version, one whose fields are secrets.
    let mut odd: Value = serde_json::from_slice(&chat(&all()).encode(Encoding::Json).unwrap()).unwrap();
    odd["deadline"] = all().into();
    odd["reply_to"] = all().into();
    let half = &odd.to_string()[..40];
    let mut unheard_of = odd.clone();
    unheard_of["schema_version"] = format!("sk-{MARK}{MARK}").into();
    for body in [all(), half.to_owned() + &all(), odd.to_string(), unheard_of.to_string()] {
        let mut sent = HeaderMap::new();
        sent.insert(headers::SIGNATURE, format!("{MARK}{MARK}"));
        sent.insert(headers::TRACEPARENT, format!("00-{MARK}-{MARK}-01"));
        orchestrator.publish_raw(Kind::Chat, sent, body.into_bytes()).await;
    }
    orchestrator.wait_until_settled().await;
    // Subjects are written by others.
    let cancel = format!("pma.cancel.sk-{MARK}{MARK}");
    orchestrator.client.publish(cancel, "".into()).await.unwrap();
    // A valid handoff with secrets in all its texts.
    let asked = chat(&all());
    let mut sent = HeaderMap::new();
    sent.insert(headers::MSG_ID, asked.id.to_string());
    for (number, secret) in shaped().into_iter().enumerate() {
        sent.insert(format!("X-Secret-{number}"), secret.replace('\n', " "));
    }
    orchestrator.publish_raw(Kind::Chat, sent, asked.encode(Encoding::Json).unwrap()).await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, asked.id).await;
    assert!(
        !format!("{answer:?}").contains(&token),
        "the answer does not contain our token either: {answer:?}"
    );
    let said = [
        "Model did not answer",
        "Model did not answer.",
        "Handoff dead-lettered",
        "Cancel without a handoff id",
    ];
    eventually("the expected log messages of the worker", async || {
        let log = worker.log();
        said.iter().all(|message| log.contains(message)).then_some(())
    })
    .await;
    let log = worker.log();
    says(&log, &["[redacted]", "HTTP 500"]);
    holds_none("the worker", &log);

    let closed = Nats::start_with(&format!("authorization {{ user: worker, password: \"{MARK}\" }}"));
    let stranger = Worker::manager_at(&with_password(&closed)).set("telemetry.log_format", format);
    let mut stranger = stranger.set("telemetry.log_level", "trace").spawn();
    assert!(!stranger.process.wait(ENDS_WITHIN).success());
    let log = stranger.log();
    says(&log, &["rejected the credentials: ", "***@127.0.0.1"]);
    holds_none("a worker that is turned away", &log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_logs_no_secrets_as_json() {
    check_worker_log("json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_logs_no_secrets_as_text() {
    check_worker_log("text").await;
}

/// G11, M110: arguments, valid and invalid tokens, tool names, and what upstreams answer and log.
async fn check_gateway_log(format: &'static str) {
    let gateway =
        GatewayProcess::start_with(&[("telemetry.log_level", "trace"), ("telemetry.log_format", format)])
            .await;
    let manager = gateway.manager().await;
    let program = binary("mcp-stdio-server").display().to_string();
    let theirs = gateway.folder().join("their.secret");
    fs::write(&theirs, format!("{MARK}-for-them\n")).unwrap();
    let local = json!({
        "namespace": "local", "trust_first": true, "call_timeout": "5s",
        "transport": { "stdio": { "argv": [program, "normal"],
            "secret_env": { "TOKEN": theirs.display().to_string() } } },
    });
    gateway.must("POST", "/api/v1/upstreams", Some(local)).await;
    // An upstream that writes to stderr and exits.
    let complains = all().replace('\'', "").replace('\n', " ");
    let noisy = json!({
        "namespace": "noisy",
        "transport": { "stdio": { "argv": ["sh", "-c", format!("echo '{complains}' >&2; exit 3")] } },
    });
    gateway.ask("POST", "/api/v1/upstreams", Some(noisy)).await;
    let passworded = json!({
        "namespace": "remote",
        "transport": { "http": { "url": format!("http://user:{MARK}{MARK}@127.0.0.1:9/mcp") } },
    });
    gateway.ask("POST", "/api/v1/upstreams", Some(passworded)).await;
    for tool in ["local.echo", "local.complain", "db.task.create", "db.task.get"] {
        let arguments =
            json!({ "text": all(), "task_id": all(), "name": all(), "unheard_of": { "token": all() } });
        gateway.post_call(&manager, tool, arguments).await;
    }
    for secret in shaped() {
        gateway.post_call(&manager, &secret, json!({})).await;
        let one_line = secret.replace('\n', " ");
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
        gateway.post(Some(&one_line), list).await;
        gateway.ask_as(&one_line, "GET", "/api/v1/tokens", None).await;
        gateway.post(Some(&manager), secret).await;
    }
    let said = [
        "Call denied.",
        "Upstream process wrote to stderr.",
        "Upstream connection failed.",
        "Admin operation completed.",
    ];
    eventually("the expected log messages of the gateway", async || {
        let log = gateway.log();
        said.iter().all(|message| log.contains(message)).then_some(())
    })
    .await;
    let log = gateway.log();
    says(&log, &["[redacted]"]);
    holds_none("the gateway", &log);
    for secret in [&manager, &gateway.admin_token()] {
        assert!(!log.contains(secret.as_str()), "a token is in the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_logs_no_secrets_as_json() {
    check_gateway_log("json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_logs_no_secrets_as_text() {
    check_gateway_log("text").await;
}

/// Error messages about a setting do not contain the secret in it, in every program and from every source.
#[test]
fn errors_about_settings_contain_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let told = |program: &str, arguments: &[String], variables: &[(&str, &str)], key: &str| {
        let finished = run(&binary(program), folder.path(), arguments, variables);
        let Finished { code, stdout, stderr } = &finished;
        assert_ne!(*code, 0, "{program} {arguments:?}");
        assert!(stderr.contains(key), "{program} {arguments:?}: {stderr}");
        holds_none(program, &format!("{stdout}\n{stderr}"));
    };
    let seed = format!("SU{}", &MARK_BASE32.repeat(5)[..56]);
    let set = |pairs: &[&str]| -> Vec<String> {
        let role = "--role=project_manager".to_owned();
        std::iter::once(role)
            .chain(pairs.iter().flat_map(|pair| ["--set".to_owned(), (*pair).to_owned()]))
            .collect()
    };
    for (key, setting) in [
        ("telemetry.otlp_endpoint", format!("telemetry.otlp_endpoint=ftp://user:{MARK}{MARK}@collector")),
        ("gateway.url", format!("gateway.url=ftp://user:{MARK}{MARK}@gateway")),
        ("security.trusted_producers", format!("security.trusted_producers=[\"{seed}\"]")),
        ("worker.ack_wait", format!("worker.ack_wait=sk-{MARK}{MARK}")),
        ("worker.api_key", format!("worker.api_key={MARK}{MARK}")),
    ] {
        told("cynode-pma", &set(&[&setting]), &[], key);
    }
    let variable = format!("nats://user:{MARK}@nowhere:1/{MARK}@");
    told("cynode-pma", &set(&["worker.ack_wait=soon"]), &[("PMA_NATS__URL", &variable)], "worker.ack_wait");
    told("cynode-pma", &set(&[]), &[("OPENAI_API_KEY", &format!("sk-{MARK}{MARK}"))], "OPENAI_API_KEY");
    for (key, setting) in [
        ("telemetry.otlp_endpoint", format!("telemetry.otlp_endpoint=ftp://user:{MARK}{MARK}@collector")),
        ("store", format!("store.url=postgres://user:{MARK}{MARK}@127.0.0.1:1/none")),
        ("telemetry.log_level", format!("telemetry.log_level=token={MARK}{MARK}")),
    ] {
        let data = Path::new("data").display().to_string();
        told("cynode-gateway", &["--data".to_owned(), data, "--set".to_owned(), setting], &[], key);
    }
}
