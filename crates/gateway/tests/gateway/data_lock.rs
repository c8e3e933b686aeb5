//! Only one gateway can use a data folder or a SQLite file. A second one is refused before it touches
//! anything.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{Answer, Finished, Gateway, GatewayProcess, Process, Tool, binary, eventually};
use tokio::task::JoinSet;

/// Time limit for a second gateway to be refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

/// Starts a second gateway on separate ports and waits for its end; if it serves, the test fails.
fn second(arguments: &[&str]) -> Finished {
    let log = tempfile::NamedTempFile::new().unwrap();
    let any = "127.0.0.1:0";
    let mut line: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    line.extend(["--listen", any, "--admin-listen", any].map(str::to_owned));
    let mut process = Process::start(&binary("cynode-gateway"), &line, &[], log.path());
    let until = Instant::now() + REFUSED_WITHIN;
    while process.is_running() && Instant::now() < until {
        let said = fs::read_to_string(log.path()).unwrap();
        assert!(!said.contains("\"Ready.\""), "a second gateway serves with {arguments:?}:\n{said}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let code = process.wait(Duration::ZERO).code().unwrap_or(-1);
    Finished { code, stdout: String::new(), stderr: fs::read_to_string(log.path()).unwrap() }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A call that runs until the test ends it.
struct Running {
    server: Gateway,
    open: Arc<AtomicBool>,
    sent: JoinSet<Value>,
}

impl Running {
    async fn start(gateway: &GatewayProcess) -> Self {
        let open = Arc::new(AtomicBool::new(false));
        let seen = open.clone();
        let tool = Tool::new("pay", "Pays.", json!({ "type": "object" }), move |_| {
            let until = Instant::now() + Duration::from_secs(60);
            while !seen.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            Answer::text("paid")
        });
        let server = Gateway::start(vec![tool]).await;
        let new = json!({
            "namespace": "bank", "transport": { "http": { "url": server.url() } }, "trust_first": true,
            "call_timeout": "120s", "concurrency": 8,
        });
        gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
        let params = json!({ "name": "bank.pay", "arguments": {} });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = gateway
            .http()
            .post(gateway.url())
            .bearer_auth(gateway.manager().await)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        let mut sent = JoinSet::new();
        sent.spawn(async move {
            serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
        });
        eventually("the tool to run", async || (server.calls().len() == 1).then_some(())).await;
        Self { server, open, sent }
    }

    async fn end(mut self) -> Value {
        self.open.store(true, Ordering::SeqCst);
        let answer = self.sent.join_next().await.unwrap().unwrap();
        assert_eq!(self.server.calls().len(), 1);
        answer
    }
}

/// Whatever path leads to the files, a second gateway is refused, and the running call keeps its single audit
/// row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_is_refused_before_it_touches_anything() {
    let gateway = GatewayProcess::start().await;
    let running = Running::start(&gateway).await;
    let other = tempfile::tempdir().unwrap();
    let (linked, elsewhere) = (other.path().join("linked"), other.path().join("elsewhere"));
    symlink(gateway.folder(), &linked).unwrap();
    let (soft, hard) = (other.path().join("soft.db"), gateway.folder().join("hard.db"));
    symlink(gateway.database(), &soft).unwrap();
    fs::hard_link(gateway.database(), &hard).unwrap();
    let dotted = gateway.folder().join("../").join(gateway.folder().file_name().unwrap());
    let sqlite = |path: &PathBuf| format!("sqlite://{}", path.display());
    let (folder, elsewhere) = (text(gateway.folder()), text(&elsewhere));
    let pid = format!("process {}", gateway.process.id());
    for (arguments, named) in [
        (vec!["--data".to_owned(), folder.clone()], folder.clone()),
        (vec!["--data".to_owned(), text(&linked)], text(&linked)),
        (vec!["--data".to_owned(), text(&dotted)], text(&dotted)),
        (vec!["check".to_owned(), "--data".to_owned(), folder.clone()], folder.clone()),
        (
            vec!["--data".to_owned(), elsewhere.clone(), "--store-url".to_owned(), gateway.store_url()],
            text(&gateway.database()),
        ),
        (vec!["--data".to_owned(), elsewhere.clone(), "--store-url".to_owned(), sqlite(&soft)], text(&soft)),
        (vec!["--data".to_owned(), elsewhere.clone(), "--store-url".to_owned(), sqlite(&hard)], text(&hard)),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let refused = tokio::task::block_in_place(|| second(&arguments));
        assert_eq!(refused.code, 69, "{arguments:?}: {refused:?}");
        for word in [named.as_str(), &pid, "stop that gateway, or pass another"] {
            // The report of `check` is on standard output.
            let is_said = refused.stderr.contains(word) || refused.stdout.contains(word);
            assert!(is_said, "{arguments:?}: {word} is missing: {refused:?}");
        }
    }
    let rows = gateway.audit("tool=bank.pay").await;
    assert!(rows.is_empty(), "the call still runs, but the audit has: {rows:?}");
    let answer = running.end().await;
    assert_eq!(answer["result"]["content"][0]["text"], "paid", "{answer}");
    let rows = gateway.audit("tool=bank.pay").await;
    let outcomes: Vec<_> = rows.iter().map(|row| (&row["decision"], &row["status"])).collect();
    assert_eq!(outcomes, [(&json!("allow"), &json!("success"))]);
}

/// The lock ends with the process, also after SIGKILL, and is not inherited by programs that it started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_leaves_no_lock() {
    let mut gateway = GatewayProcess::start().await;
    let program = text(&binary("mcp-stdio-server"));
    let new = json!({
        "namespace": "local", "transport": { "stdio": { "argv": [program] } }, "trust_first": true,
    });
    gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
    for _ in 0..3 {
        gateway.kill();
        gateway.start_again().await;
    }
    gateway.process.terminate();
    assert!(gateway.process.wait(Duration::from_secs(30)).success());
    let checked = testkit::run(
        &binary("cynode-gateway"),
        gateway.folder(),
        &["check", "--data", &text(gateway.folder())],
        &[],
    );
    assert_eq!(checked.code, 0, "{checked:?}");
}

/// Of several gateways that start at once on an empty folder, one serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_gateways_started_at_once_serves() {
    let folder = tempfile::tempdir().unwrap();
    let data = text(&folder.path().join("data"));
    let any = "127.0.0.1:0";
    let line = ["--data", &data, "--listen", any, "--admin-listen", any].map(str::to_owned);
    let logs: Vec<PathBuf> = (0..4).map(|number| folder.path().join(format!("log-{number}"))).collect();
    let program = binary("cynode-gateway");
    let mut processes: Vec<Process> =
        logs.iter().map(|log| Process::start(&program, &line, &[], log)).collect();
    eventually("three gateways to end", || {
        let running = processes.iter_mut().filter_map(|process| process.is_running().then_some(())).count();
        std::future::ready((running <= 1).then_some(()))
    })
    .await;
    eventually("one gateway to serve", async || {
        let ready =
            logs.iter().filter(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("\"Ready.\"")));
        (ready.count() == 1).then_some(())
    })
    .await;
}

/// A store that SQLite made for all to read is closed as well.
#[tokio::test]
async fn other_users_of_the_machine_cannot_read_the_data() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("var/gateway");
    let files = ["gateway.db", "gateway.db-wal", "gateway.db-shm"].map(|name| data.join(name));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for start in ["first", "second"] {
        let log = root.path().join(start);
        let any = "127.0.0.1:0";
        let line = ["--listen", any, "--admin-listen", any, "--data", &text(&data)].map(str::to_owned);
        let process = Process::start(&binary("cynode-gateway"), &line, &[], &log);
        eventually("the gateway to be ready", async || {
            fs::read_to_string(&log).unwrap_or_default().contains("\"Ready.\"").then_some(())
        })
        .await;
        assert_eq!(mode(&data), 0o700, "the {start} start");
        for file in &files {
            assert_eq!(mode(file), 0o600, "the {start} start: {}", file.display());
        }
        // Without a chance to remove its files.
        process.signal(nix::sys::signal::Signal::SIGKILL);
        drop(process);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        for file in &files {
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
}
