//! `cynodectl up` with a real stack: the tour, a conversation at a pseudo-terminal, signals, and the errors
//! when the stack cannot start.

mod runner;

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ChildStdin,
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use testkit::{
    Finished, Model, Process, Script, cynodectl, eventually_within, free_port, nats_server, run, workspace,
};

const USAGE: i32 = 64;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the runner of workflows, if it is on this machine.
fn runner() -> Option<PathBuf> {
    let program = workspace().join(".tools/workflow/bin/cynode-workflow");
    program.is_file().then_some(program)
}

/// A data folder and free ports for one stack.
struct StackFolder {
    folder: TempDir,
    nats_port: u16,
    gateway_port: u16,
    api_port: u16,
}

impl StackFolder {
    fn new() -> Self {
        let (nats_port, gateway_port, api_port) = (free_port(), free_port(), free_port());
        Self { folder: tempfile::tempdir().unwrap(), nats_port, gateway_port, api_port }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn up(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = vec![
            "up".to_owned(),
            format!("--data={}", self.data().display()),
            format!("--nats-port={}", self.nats_port),
            format!("--gateway-port={}", self.gateway_port),
            format!("--api-port={}", self.api_port),
            format!("--nats-server={}", nats_server().display()),
            format!("--instructions={}", workspace().join("instructions").display()),
        ];
        if let Some(runner) = runner() {
            arguments.push(format!("--workflow-runner={}", runner.display()));
        }
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        arguments
    }

    async fn run(&self, arguments: Vec<String>) -> Finished {
        let folder = self.folder.path().to_owned();
        tokio::task::spawn_blocking(move || run(&cynodectl(), &folder, &arguments, &[])).await.unwrap()
    }

    fn down(&self) -> Vec<String> {
        vec!["down".to_owned(), format!("--data={}", self.data().display())]
    }

    /// Returns the recorded processes by name.
    fn processes(&self) -> Vec<(String, u32)> {
        let text = fs::read_to_string(self.data().join("up.pids")).unwrap_or_default();
        let pair =
            |line: &str| line.split_once(' ').map(|(name, pid)| (name.to_owned(), pid.parse().unwrap()));
        text.lines().filter_map(pair).collect()
    }
}

/// Returns whether a process runs and is not a zombie.
fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Asserts that the texts occur in this order.
#[track_caller]
fn assert_in_order(text: &str, steps: &[&str]) {
    let mut rest = text;
    for step in steps {
        let Some((_, after)) = rest.split_once(step) else {
            panic!("`{step}` is missing, or too early, in:\n{text}")
        };
        rest = after;
    }
}

#[tokio::test]
async fn tour_runs_every_step_and_leaves_no_process_behind() {
    let stack = StackFolder::new();
    // Without a terminal the tour is the default.
    let finished = stack.run(stack.up(&[])).await;
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    assert_in_order(
        &finished.stdout,
        &[
            "manager-1",
            "manager-2",
            "analyst-1",
            "=== A plan, by chat",
            "- `write-the-texts`: pending",
            "created",
            "=== A schedule fires",
            "look-for-broken-links",
            "=== The tasks in the gateway's store",
            "collect-the-texts",
            "publish-the-site",
            "=== An analyst verifies one of them",
            "(Created the task `remedy-the-site-is-up` for what is not met.)",
            ": fail",
            "=== The manager runs tests in a sandbox",
            "=== The same manager, over the OpenAI-compatible API",
            "`collect-the-texts`",
            "=== A worker is killed in the middle",
            "kill -9 manager-",
            "`tell-everybody-about-the-new-site`",
            "attempt 1 by manager-",
            "db.task.create returned",
            "attempt 2 by manager-",
            "answered: completed by manager-",
            "=== A handoff misses its deadline, and gets another chance",
            "deadline_exceeded",
            "replayed 1 as",
            "`db.task.list`",
            "=== A goal, by chat, until it is done",
            "That was the tour.",
        ],
    );
    // This machine either has a node, which runs the job, or says what is missing.
    let ran = finished.stdout.contains("test_link_of_the_site_is_local");
    let says_why = finished.stderr.contains("no node: this machine cannot sandbox jobs");
    assert!(ran != says_why, "{}\n{}", finished.stdout, finished.stderr);
    // The same for the goal, which needs a runner, too.
    let is_done = finished.stdout.contains("/console/workflows/");
    let has_no_runner = finished.stderr.contains("no runner, so workflows wait");
    assert!(is_done != (says_why || has_no_runner), "{}\n{}", finished.stdout, finished.stderr);
    if is_done {
        assert_in_order(
            &finished.stdout,
            &[
                "=== A schedule fires",
                "verify_step_result find-xtype-l ended: pass",
                "done: ",
                "=== The tasks in the gateway's store",
                "you> Do: write the first page",
                "workflow.start",
                "--follow",
                "plan_steps",
                "dispatch_step echo-h1-welcome-h1-index-html",
                "verify_step_result grep-h-welcome-index-html",
                "done: ",
                "done    1 of 3  pass",
                "An analyst found that “index.html has Welcome” is met",
                "In the console: http://127.0.0.1:",
            ],
        );
    }
    for step in
        ["nats-server on", "gateway on", "workers: manager-1, manager-2, analyst-1", "up in", "signal 9"]
    {
        assert!(finished.stderr.contains(step), "{step}: {}", finished.stderr);
    }
    assert_eq!(stack.processes(), []);
    let (gateway, api) = (stack.gateway_port, stack.api_port);
    for port in [stack.nats_port, gateway, gateway + 1, api, api + 1, api + 5, api + 6] {
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "{port} is still in use");
    }
    // Other users of the machine cannot read tokens and conversations, also where they could before.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&stack.data()), 0o700);
    fs::set_permissions(stack.data(), fs::Permissions::from_mode(0o755)).unwrap();
    // The data is kept, and a second start does not seed it again.
    let again = stack.run(stack.up(&["--tour"])).await;
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    assert_eq!(again.stdout.matches(" collect-the-texts ").count(), 1, "{}", again.stdout);
    assert_eq!(mode(&stack.data()), 0o700);
    // The logs of the first start are kept.
    for process in ["nats", "gateway", "manager-1", "orchestrator"] {
        let log = |ending: &str| fs::read_to_string(stack.data().join(format!("{process}{ending}"))).unwrap();
        assert!(!log(".log").is_empty() && !log(".log.1").is_empty(), "{process}");
        assert_ne!(log(".log"), log(".log.1"), "{process}");
    }
}

/// P15: with nothing but a key in a file, managers ask an external provider, through the egress alone.
#[tokio::test]
async fn key_file_of_a_provider_is_all_that_is_needed() {
    use std::os::unix::fs::OpenOptionsExt;

    let provider = Model::start([Script::say("Which plants?"), Script::say("Nothing is due.")]).await;
    let stack = StackFolder::new();
    let key = stack.folder.path().join("key.txt");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key).unwrap();
    file.write_all(b"a-key-of-the-provider\n").unwrap();
    let url = provider.url();
    let finished = stack
        .run(stack.up(&[
            "--tour",
            &format!("--provider-key-file={}", key.display()),
            &format!("--provider-url={url}"),
            "--model=large-model",
        ]))
        .await;
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.contains("Which plants?"), "{}", finished.stdout);
    assert!(finished.stderr.contains("through the egress"), "{}", finished.stderr);
    assert!(!provider.turns().is_empty());
    for entry in fs::read_dir(stack.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let text = fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("a-key-of-the-provider"), "{}", path.display());
        }
    }
}

/// Runs `cynodectl up` at a pseudo-terminal of `script`. `script` runs a shell, and some shells exit on a
/// Ctrl-C that their child handles; `exec` replaces the shell.
fn at_a_terminal(stack: &StackFolder, more: &[&str]) -> (Process, ChildStdin, PathBuf) {
    let command: Vec<String> =
        std::iter::once(cynodectl().display().to_string()).chain(stack.up(more)).collect();
    let log = stack.folder.path().join("screen.txt");
    let command = format!("exec {}", command.join(" "));
    let arguments = ["-qec", &command, "/dev/null"].map(str::to_owned);
    let (process, input) = Process::start_with_stdin(
        Path::new("/usr/bin/script"),
        &arguments,
        &[("TERM".to_owned(), "xterm".to_owned())],
        &log,
    );
    (process, input, log)
}

async fn shows(log: &Path, text: &str) {
    eventually_within(TIMEOUT, text, async || {
        fs::read_to_string(log).unwrap_or_default().contains(text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn chat_at_a_terminal_ends_the_stack_with_ctrl_c() {
    let stack = StackFolder::new();
    let (mut process, mut input, log) = at_a_terminal(&stack, &[]);
    shows(&log, "you> ").await;
    let pids = stack.processes();
    // A machine that cannot sandbox has no node, and one without the packages of the runner has none.
    let optional = |name: &str| name == "node-1" || name == "workflow-1";
    assert_eq!(pids.iter().filter(|(name, _)| !optional(name)).count(), 6, "{pids:?}");

    input.write_all(b"Create a task\n").unwrap();
    shows(&log, "What should the task be called?").await;
    shows(&log, "answer> ").await;
    input.write_all(b"create a task: paint the fence\n").unwrap();
    // The call is shown while it runs, then the result.
    shows(&log, "→ db.task.create").await;
    shows(&log, "paint-the-fence`: pending").await;
    shows(&log, "completed · attempt 1").await;
    input.write_all(b"/tasks\n").unwrap();
    shows(&log, "TASK").await;
    input.write_all(b"/journal\n").unwrap();
    shows(&log, "answered: completed").await;
    // A task is named by its name or its id.
    input.write_all(b"/verify paint-the-house it is blue\n").unwrap();
    shows(&log, "there is no task `paint-the-house` here").await;
    input.write_all(b"/verify paint-the-fence it is painted\n").unwrap();
    shows(&log, "unclear  it is painted").await;
    input.write_all(b"/dance\n").unwrap();
    shows(&log, "unknown command /dance; /help lists all commands").await;
    // Line editing: Ctrl-A goes to the beginning of the line, the up arrow brings the last line back.
    input.write_all(b"sing\x01/\n").unwrap();
    shows(&log, "unknown command /sing").await;
    input.write_all(b"\x1b[A\x17/whistle\n").unwrap();
    shows(&log, "unknown command /whistle").await;
    input.write_all(b"\x1b[A\x1b[A-twice\n").unwrap();
    shows(&log, "unknown command /sing-twice").await;
    let history = fs::read_to_string(stack.data().join("chat-history")).unwrap();
    assert!(history.contains("create a task: paint the fence\n/tasks\n"), "{history}");

    // A second start in the same folder is refused.
    let second = stack.run(stack.up(&[])).await;
    assert_eq!(second.code, USAGE, "{second:?}");
    assert!(
        second.stderr.contains("already running in") && second.stderr.contains("cynodectl down"),
        "{second:?}"
    );

    // Ctrl-C, as the terminal sends it.
    input.write_all(b"\x03").unwrap();
    let status = process.wait(TIMEOUT);
    assert!(status.success(), "{status}: {}", fs::read_to_string(&log).unwrap());
    assert!(pids.iter().all(|(_, pid)| !is_running(*pid)), "{pids:?}");
}

#[tokio::test]
async fn ctrl_c_cancels_the_running_handoff() {
    let stack = StackFolder::new();
    let (mut process, mut input, log) = at_a_terminal(&stack, &["--think-time=60s"]);
    shows(&log, "you> ").await;
    input.write_all(b"hello\n").unwrap();
    shows(&log, "is thinking").await;
    input.write_all(b"\x03").unwrap();
    shows(&log, "cancelled by request").await;
    // The conversation continues.
    input.write_all(b"/quit\n").unwrap();
    assert!(process.wait(TIMEOUT).success());
}

#[tokio::test]
async fn processes_of_a_killed_supervisor_are_named_and_stopped() {
    let stack = StackFolder::new();
    let log = stack.folder.path().join("up.txt");
    let mut supervisor = Process::start(&cynodectl(), &stack.up(&["--stay"]), &[], &log);
    shows(&log, "the stack is up").await;
    let pids = stack.processes();
    supervisor.signal(Signal::SIGKILL);
    supervisor.kill();
    assert!(pids.iter().all(|(_, pid)| is_running(*pid)), "they outlive the supervisor: {pids:?}");

    let refused = stack.run(stack.up(&["--stay"])).await;
    assert_eq!(refused.code, USAGE, "{refused:?}");
    assert!(refused.stderr.contains("gateway (") && refused.stderr.contains("cynodectl down"), "{refused:?}");
    let ended = stack.run(stack.down()).await;
    // Workers first, or they would wait for NATS in vain.
    let stopped: Vec<&str> =
        ended.stdout.lines().filter_map(|line| line.strip_suffix(" has stopped")).collect();
    assert_eq!((ended.code, stopped.len()), (0, pids.len()), "{ended:?}");
    assert!(stopped.ends_with(&["gateway", "nats"]), "{ended:?}");
    assert!(pids.iter().all(|(_, pid)| !is_running(*pid)), "{pids:?}");
    assert!(stack.run(stack.down()).await.stderr.contains("no stack is running here"));
}

#[tokio::test]
async fn a_provider_without_a_model_is_refused_before_anything_starts() {
    let stack = StackFolder::new();
    let key = stack.folder.path().join("key.txt");
    let refused = stack.run(stack.up(&["--tour", &format!("--provider-key-file={}", key.display())])).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (USAGE, ""), "{refused:?}");
    assert!(refused.stderr.contains("MODEL=") && !stack.data().exists(), "{refused:?}");
}

/// A key that cannot be read is reported at once, not by a program that starts last.
#[tokio::test]
async fn key_file_that_cannot_be_used_is_refused_before_anything_starts() {
    let stack = StackFolder::new();
    let open = stack.folder.path().join("open.txt");
    fs::write(&open, "a-key\n").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let empty = stack.folder.path().join("empty.txt");
    fs::write(&empty, "\n").unwrap();
    let missing = stack.folder.path().join("missing.txt");
    for (setting, file, why) in [
        ("provider-key-file", &missing, "No such file"),
        ("provider-key-file", &open, "chmod 600"),
        ("model-token-file", &missing, "No such file"),
        ("model-token-file", &empty, "contains no token"),
    ] {
        let setting = format!("--{setting}={}", file.display());
        let refused = stack.run(stack.up(&["--tour", "--model=m", &setting])).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (USAGE, ""), "{refused:?}");
        let is_named = refused.stderr.contains(&file.display().to_string());
        assert!(is_named && refused.stderr.contains(why) && !stack.data().exists(), "{refused:?}");
    }
}

#[tokio::test]
async fn down_stops_a_stack_through_its_supervisor() {
    let stack = StackFolder::new();
    let log = stack.folder.path().join("up.txt");
    let mut supervisor = Process::start(&cynodectl(), &stack.up(&["--stay"]), &[], &log);
    shows(&log, "the stack is up").await;
    shows(&log, "The user of this stack is `you`").await;
    let pids = stack.processes();
    let ended = stack.run(stack.down()).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.ends_with("the stack has stopped\n"), "{ended:?}");
    for (name, _) in pids {
        assert!(ended.stdout.contains(&format!("{name} has stopped\n")), "{name}: {ended:?}");
    }
    assert!(supervisor.wait(TIMEOUT).success());
}

#[tokio::test]
async fn start_errors_name_the_cause() {
    let stack = StackFolder::new();
    let taken = TcpListener::bind(("127.0.0.1", stack.gateway_port)).unwrap();
    let refused = stack.run(stack.up(&[])).await;
    assert_eq!(refused.code, USAGE);
    let expected = format!("port {} is in use", stack.gateway_port);
    assert!(refused.stderr.contains(&expected) && refused.stderr.contains("GATEWAY_PORT="), "{refused:?}");
    drop(taken);

    let refused = stack.run(stack.up(&["--instructions=nowhere"])).await;
    assert_eq!(refused.code, USAGE);
    assert!(refused.stderr.contains("--instructions"), "{refused:?}");

    // A program that fails is named, with the end of its log.
    let broken = stack.folder.path().join("nats-server");
    fs::write(&broken, "#!/bin/sh\necho this is no server >&2\nexit 3\n").unwrap();
    fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut arguments = stack.up(&[]);
    arguments.retain(|argument| !argument.starts_with("--nats-server"));
    arguments.push(format!("--nats-server={}", broken.display()));
    let failed = stack.run(arguments).await;
    assert_ne!(failed.code, 0);
    assert!(failed.stderr.contains("see nats") && failed.stderr.contains("this is no server"), "{failed:?}");
}
