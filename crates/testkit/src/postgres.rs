//! A PostgreSQL server process.

#![expect(clippy::disallowed_types, reason = "tests start the processes that they test")]

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{Process, free_port, postgres_bin, process::run_command};

mod template;
mod user;

use user::User;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const NAME: &str = "cynode";
const PASSWORD: &str = "only-for-tests";

/// A PostgreSQL server with its own port and data. Stopped when it is dropped.
///
/// Runs without fsync: committed data survives a kill of the server, but not a crash of the machine.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    folder: TempDir,
    programs: PathBuf,
    user: User,
    port: u16,
    settings: Vec<String>,
    databases: AtomicU32,
}

impl Postgres {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts with additional settings, such as `("max_connections", "5")`.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let programs = postgres_bin();
        let user = User::for_servers();
        let folder = tempfile::tempdir().expect("a folder for the server");
        user.take_ownership(folder.path());
        template::copy(&programs, user, &folder.path().join("data"));
        let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Retries, since another test may take the port in the meantime.
        for _ in 0..10 {
            let port = free_port();
            let mut process = spawn(&programs, user, folder.path(), port, &settings);
            if ready(folder.path(), &mut process) {
                let databases = AtomicU32::new(0);
                return Self { process, folder, programs, user, port, settings, databases };
            }
        }
        panic!("the server did not start:\n{}", log(folder.path()));
    }

    /// Returns the URL of the default database. Tests that share a server each create their own with
    /// [`Self::database`].
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Creates an empty database and returns its URL.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&self.url(), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Runs a statement with psql and returns its output: one line per row, columns separated by `|`.
    pub fn sql(&self, url: &str, statement: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        let options = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"];
        command.args(options).args(["--dbname", url, "--command", statement]);
        let finished = run_command(command);
        assert_eq!(finished.code, 0, "{statement}: {}", finished.stderr);
        finished.stdout.trim_end().to_owned()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends SIGKILL to the server and to every process that serves a connection.
    pub fn kill(&mut self) {
        self.process.kill_all();
    }

    /// Restarts on the same port with the same data.
    pub fn start_again(&mut self) {
        self.process = spawn(&self.programs, self.user, self.folder.path(), self.port, &self.settings);
        assert!(
            ready(self.folder.path(), &mut self.process),
            "the server did not start again:\n{}",
            log(self.folder.path())
        );
    }

    /// Returns the process that accepts connections. While it is frozen, new connections fail and existing
    /// ones go on.
    pub fn process(&self) -> &Process {
        &self.process
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{NAME}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.is_running() {
            // An immediate shutdown that, unlike SIGKILL, releases the shared memory.
            self.process.thaw();
            self.process.signal(Signal::SIGQUIT);
            let until = Instant::now() + STOP_TIMEOUT;
            while self.process.is_running() && Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
            }
        }
        self.process.kill_all();
    }
}

fn spawn(programs: &Path, user: User, folder: &Path, port: u16, settings: &[String]) -> Process {
    let mut arguments =
        vec!["-D".to_owned(), text(folder.join("data").display()), "-p".to_owned(), text(port)];
    let sockets = format!("unix_socket_directories={}", folder.display());
    let ours = [
        "listen_addresses=127.0.0.1",
        &sockets,
        "fsync=off",
        "full_page_writes=off",
        "dynamic_shared_memory_type=mmap",
        "shared_buffers=16MB",
        "log_min_messages=warning",
    ];
    for setting in ours.iter().copied().chain(settings.iter().map(String::as_str)) {
        arguments.extend(["-c".to_owned(), setting.to_owned()]);
    }
    let command = user.command(&programs.join("postgres"), folder);
    Process::start_command(command, &arguments, &[], &folder.join("postgres.log"))
}

/// Waits until the server accepts connections. Returns `false` if it exited because its port is in use.
fn ready(folder: &Path, process: &mut Process) -> bool {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        // The first line is the process id, the eighth the state.
        let state = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        let lines: Vec<_> = state.lines().map(str::trim).collect();
        if lines.first() == Some(&text(process.id()).as_str()) && lines.get(7) == Some(&"ready") {
            return true;
        }
        if !process.is_running() {
            let log = log(folder);
            assert!(log.contains("could not bind"), "the server ended:\n{log}");
            return false;
        }
        assert!(Instant::now() < until, "the server did not start:\n{}", log(folder));
        thread::sleep(Duration::from_millis(5));
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("postgres.log")).unwrap_or_default()
}

fn text(value: impl Display) -> String {
    value.to_string()
}
