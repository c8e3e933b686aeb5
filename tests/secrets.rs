//! Secrets of many shapes go in wherever something can go in, with every log at its most talkative. None of them comes out, though
//! each of these places says something.

use std::{fs, path::Path, time::Duration};

use async_nats::HeaderMap;
use serde_json::{Value, json};
use subjects::{Encoding, Kind, headers};
use tempfile::TempDir;
use testkit::{
    Finished, GatewayProcess, Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, binary, chat,
    eventually, run,
};

/// A part of every secret here, and of nothing else.
const MARK: &str = "Zq7Xw2Pv9Kt4";
const MARK_BASE32: &str = "ZQ7XW2PVKT4A";
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// One of each shape that can be told from other words.
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
        assert!(!line.contains(MARK) && !line.contains(MARK_BASE32), "{what} tells a secret:\n{line}");
    }
}

/// Without this nothing would be shown by the absence of secrets.
#[track_caller]
fn says(log: &str, messages: &[&str]) {
    for message in messages {
        assert!(log.contains(message), "nothing about `{message}` in:\n{log}");
    }
}

struct Stage {
    nats: Nats,
    /// With a password.
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

/// G11: bodies, headers, subjects, a model server that quotes what it was sent, and a server that wants another password.
async fn a_worker_tells_none(format: &'static str) {
    let stage = Stage::set(format);
    let token = format!("{MARK}of-any-shape");
    let quoting = format!("not with {token}, {}", all());
    let model = Model::start([Script::Refuse(500, quoting)]).await;
    let worker = stage.worker().asking(&model).set("inference.tries", "2");
    let worker = worker.set("inference.token_file", stage.secret_file("model.token", &token)).start().await;
    let orchestrator = stage.orchestrator().await;
    // Some that are refused: no handoff, half of one, one of another version, one whose fields are secrets.
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
    orchestrator.settled().await;
    // A subject is what others write.
    let cancel = format!("pma.cancel.sk-{MARK}{MARK}");
    orchestrator.client.publish(cancel, "".into()).await.unwrap();
    // One that is worked on, with secrets all over it.
    let asked = chat(&all());
    let mut sent = HeaderMap::new();
    sent.insert(headers::MSG_ID, asked.id.to_string());
    for (number, secret) in shaped().into_iter().enumerate() {
        sent.insert(format!("X-Secret-{number}"), secret.replace('\n', " "));
    }
    orchestrator.publish_raw(Kind::Chat, sent, asked.encode(Encoding::Json).unwrap()).await;
    let answer = orchestrator.answered(Kind::Chat, asked.id).await;
    assert!(!format!("{answer:?}").contains(&token), "the user is not told our token either: {answer:?}");
    let said = [
        "Model did not answer",
        "Model did not answer.",
        "Handoff dead-lettered",
        "Cancel without a handoff id",
    ];
    eventually("the worker's words", async || {
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
async fn a_worker_tells_no_secrets_in_json() {
    a_worker_tells_none("json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_tells_no_secrets_in_text() {
    a_worker_tells_none("text").await;
}

/// G11, M110: arguments, tokens good and bad, names of tools, what servers behind it answer and complain.
async fn a_gateway_tells_none(format: &'static str) {
    let gateway = GatewayProcess::start_with(&[("log.level", "trace"), ("log.format", format)]).await;
    let manager = gateway.manager().await;
    let program = binary("mcp-stdio-server").display().to_string();
    let theirs = gateway.folder().join("their.secret");
    fs::write(&theirs, format!("{MARK}-for-them\n")).unwrap();
    let local = json!({
        "namespace": "local", "trust_first": true, "call_timeout": "5s",
        "transport": { "stdio": { "argv": [program, "normal"], "secret_env": { "TOKEN": theirs.display().to_string() } } },
    });
    gateway.must("POST", "/api/v1/upstreams", Some(local)).await;
    // A server that complains and leaves.
    let complains = all().replace('\'', "").replace('\n', " ");
    let noisy = json!({
        "namespace": "noisy",
        "transport": { "stdio": { "argv": ["sh", "-c", format!("echo '{complains}' >&2; exit 3")] } },
    });
    gateway.ask("POST", "/api/v1/upstreams", Some(noisy)).await;
    let passworded = json!({
        "namespace": "remote", "transport": { "http": { "url": format!("http://user:{MARK}{MARK}@127.0.0.1:9/mcp") } },
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
    eventually("the gateway's words", async || {
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
async fn a_gateway_tells_no_secrets_in_json() {
    a_gateway_tells_none("json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_tells_no_secrets_in_text() {
    a_gateway_tells_none("text").await;
}

/// What is wrong with a setting is told without the secret in it, by whatever program and however it is set.
#[test]
fn wrong_settings_are_told_without_their_secrets() {
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
        ("log.level", format!("log.level=token={MARK}{MARK}")),
    ] {
        let data = Path::new("data").display().to_string();
        told("cynode-gateway", &["--data".to_owned(), data, "--set".to_owned(), setting], &[], key);
    }
}
