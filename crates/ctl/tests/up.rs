//! A whole stack on this machine, as a newcomer starts it: the tour, a conversation at a real terminal, and what is said
//! when it cannot be started. Tasks, schedules, verification, journal and dead letters are real; so are the signals.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::ChildStdin,
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use testkit::{Finished, Process, cynodectl, eventually_within, free_port, nats_server, run, workspace};

const USAGE: i32 = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder and ports of its own.
struct Place {
    folder: TempDir,
    nats_port: u16,
    gateway_port: u16,
}

impl Place {
    fn new() -> Self {
        let nats_port = free_port();
        let is_pair = |port: &u16| TcpListener::bind(("127.0.0.1", port + 1)).is_ok();
        let gateway_port = std::iter::repeat_with(free_port).find(is_pair).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), nats_port, gateway_port }
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
            format!("--nats-server={}", nats_server().display()),
            format!("--instructions={}", workspace().join("instructions").display()),
        ];
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

    /// What runs, by name.
    fn processes(&self) -> Vec<(String, u32)> {
        let text = fs::read_to_string(self.data().join("up.pids")).unwrap_or_default();
        let pair =
            |line: &str| line.split_once(' ').map(|(name, pid)| (name.to_owned(), pid.parse().unwrap()));
        text.lines().filter_map(pair).collect()
    }
}

/// Whether it is more than an entry that nobody has read yet.
fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Steps of a transcript, in their order.
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
async fn the_tour_shows_everything_and_leaves_nothing_behind() {
    let place = Place::new();
    // Nobody is at a terminal, so it is the tour without being asked for.
    let finished = place.run(place.up(&[])).await;
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
            "unclear  the site is up",
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
            "That was the tour.",
        ],
    );
    for step in
        ["nats-server on", "gateway on", "workers: manager-1, manager-2, analyst-1", "up in", "signal 9"]
    {
        assert!(finished.stderr.contains(step), "{step}: {}", finished.stderr);
    }
    assert_eq!(place.processes(), []);
    for port in [place.nats_port, place.gateway_port, place.gateway_port + 1] {
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "{port} is still taken");
    }
    // What was done is still there, and a second start adds nothing twice.
    let again = place.run(place.up(&["--tour"])).await;
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    assert_eq!(again.stdout.matches(" collect-the-texts ").count(), 1, "{}", again.stdout);
}

/// `cynodectl up` at a terminal: `script` gives it one. `script` runs a shell, and some shells die of a Ctrl-C
/// that their child lived through: with `exec` none stands between.
fn at_a_terminal(place: &Place, more: &[&str]) -> (Process, ChildStdin, PathBuf) {
    let command: Vec<String> =
        std::iter::once(cynodectl().display().to_string()).chain(place.up(more)).collect();
    let log = place.folder.path().join("screen.txt");
    let command = format!("exec {}", command.join(" "));
    let arguments = ["-qec", &command, "/dev/null"].map(str::to_owned);
    let (process, input) = Process::start_typing(Path::new("/usr/bin/script"), &arguments, &[], &log);
    (process, input, log)
}

async fn shows(log: &Path, text: &str) {
    eventually_within(PATIENCE, text, async || {
        fs::read_to_string(log).unwrap_or_default().contains(text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_person_talks_to_the_manager_and_ends_everything_with_ctrl_c() {
    let place = Place::new();
    let (mut process, mut input, log) = at_a_terminal(&place, &[]);
    shows(&log, "you> ").await;
    let pids = place.processes();
    assert_eq!(pids.len(), 5, "{pids:?}");

    input.write_all(b"Create a task\n").unwrap();
    shows(&log, "What should the task be called?").await;
    shows(&log, "answer> ").await;
    input.write_all(b"create a task: paint the fence\n").unwrap();
    // The call is shown as it happens, then what came of it.
    shows(&log, "→ db.task.create").await;
    shows(&log, "paint-the-fence`: pending").await;
    shows(&log, "completed · attempt 1").await;
    input.write_all(b"/tasks\n").unwrap();
    shows(&log, "TASK").await;
    input.write_all(b"/journal\n").unwrap();
    shows(&log, "answered: completed").await;
    input.write_all(b"/dance\n").unwrap();
    shows(&log, "there is no /dance; /help lists what there is").await;

    // Another start in the same folder is told what is going on.
    let second = place.run(place.up(&[])).await;
    assert_eq!(second.code, USAGE, "{second:?}");
    assert!(second.stderr.contains("runs in") && second.stderr.contains("cynodectl down"), "{second:?}");

    // Ctrl-C, as the terminal sends it.
    input.write_all(b"\x03").unwrap();
    let status = process.wait(PATIENCE);
    assert!(status.success(), "{status}: {}", fs::read_to_string(&log).unwrap());
    assert!(pids.iter().all(|(_, pid)| !lives(*pid)), "{pids:?}");
}

#[tokio::test]
async fn ctrl_c_cancels_what_is_being_worked_on() {
    let place = Place::new();
    let (mut process, mut input, log) = at_a_terminal(&place, &["--think-time=60s"]);
    shows(&log, "you> ").await;
    input.write_all(b"hello\n").unwrap();
    shows(&log, "is thinking").await;
    input.write_all(b"\x03").unwrap();
    shows(&log, "cancelled by request").await;
    // The conversation goes on.
    input.write_all(b"/quit\n").unwrap();
    assert!(process.wait(PATIENCE).success());
}

#[tokio::test]
async fn what_a_killed_supervisor_left_behind_is_named_and_ended() {
    let place = Place::new();
    let log = place.folder.path().join("up.txt");
    let mut supervisor = Process::start(&cynodectl(), &place.up(&["--stay"]), &[], &log);
    shows(&log, "the stack is up").await;
    let pids = place.processes();
    supervisor.signal(Signal::SIGKILL);
    supervisor.kill();
    assert!(pids.iter().all(|(_, pid)| lives(*pid)), "they outlive it: {pids:?}");

    let refused = place.run(place.up(&["--stay"])).await;
    assert_eq!(refused.code, USAGE, "{refused:?}");
    assert!(refused.stderr.contains("gateway (") && refused.stderr.contains("cynodectl down"), "{refused:?}");
    let ended = place.run(place.down()).await;
    assert_eq!((ended.code, ended.stdout.contains("nats has ended")), (0, true), "{ended:?}");
    assert!(pids.iter().all(|(_, pid)| !lives(*pid)), "{pids:?}");
    assert!(place.run(place.down()).await.stderr.contains("nothing runs here"));
}

#[tokio::test]
async fn down_ends_a_stack_through_its_supervisor() {
    let place = Place::new();
    let log = place.folder.path().join("up.txt");
    let mut supervisor = Process::start(&cynodectl(), &place.up(&["--stay"]), &[], &log);
    shows(&log, "the stack is up").await;
    let ended = place.run(place.down()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "the stack has ended\n"), "{ended:?}");
    assert!(supervisor.wait(PATIENCE).success());
}

#[tokio::test]
async fn what_stands_in_the_way_is_said() {
    let place = Place::new();
    let taken = TcpListener::bind(("127.0.0.1", place.gateway_port)).unwrap();
    let refused = place.run(place.up(&[])).await;
    assert_eq!(refused.code, USAGE);
    let words = format!("port {} is in use", place.gateway_port);
    assert!(refused.stderr.contains(&words) && refused.stderr.contains("GATEWAY_PORT="), "{refused:?}");
    drop(taken);

    let refused = place.run(place.up(&["--instructions=nowhere"])).await;
    assert_eq!(refused.code, USAGE);
    assert!(refused.stderr.contains("--instructions"), "{refused:?}");

    // A program that does not run is named, with the end of its log.
    let broken = place.folder.path().join("nats-server");
    fs::write(&broken, "#!/bin/sh\necho this is no server >&2\nexit 3\n").unwrap();
    fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut arguments = place.up(&[]);
    arguments.retain(|argument| !argument.starts_with("--nats-server"));
    arguments.push(format!("--nats-server={}", broken.display()));
    let failed = place.run(arguments).await;
    assert_ne!(failed.code, 0);
    assert!(failed.stderr.contains("see nats") && failed.stderr.contains("this is no server"), "{failed:?}");
}
