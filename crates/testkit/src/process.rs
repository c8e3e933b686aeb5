//! Child processes that do not outlive their test.

#![expect(clippy::disallowed_types, reason = "tests start the processes that they test")]

use std::{
    fs::File,
    io::Read,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A child process. Killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program and appends its output to the file `log`.
    pub fn start(program: &Path, arguments: &[String], variables: &[(String, String)], log: &Path) -> Self {
        Self::start_command(Command::new(program), arguments, variables, log)
    }

    /// Like [`Self::start`], with a command that sets a folder or a user.
    pub(crate) fn start_command(
        mut command: Command,
        arguments: &[String],
        variables: &[(String, String)],
        log: &Path,
    ) -> Self {
        command.stdin(Stdio::null());
        Self::spawn(command, arguments, variables, log)
    }

    fn spawn(mut command: Command, arguments: &[String], variables: &[(String, String)], log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).expect("a log file");
        let child = command
            .args(arguments)
            .envs(variables.iter().cloned())
            .env_remove("PMA_ROLE")
            .env_remove("OPENAI_API_KEY")
            .env_remove("ANTHROPIC_API_KEY")
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        Self { child }
    }

    /// Like [`Self::start`], but also returns the standard input of the program.
    pub fn start_with_stdin(
        program: &Path,
        arguments: &[String],
        variables: &[(String, String)],
        log: &Path,
    ) -> (Self, ChildStdin) {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped());
        let mut process = Self::spawn(command, arguments, variables, log);
        let input = process.child.stdin.take().expect("it was piped");
        (process, input)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time in seconds, over all cores.
    pub fn cpu(&self) -> f64 {
        cpu_of(self.id())
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).expect("the process is there");
    }

    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends SIGKILL and waits for the process.
    pub fn kill(&mut self) {
        // Fails if the process has already ended, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends SIGKILL to the process and all its descendants, and waits until they have ended.
    pub fn kill_all(&mut self) {
        let started = descendants(self.child.id());
        self.kill();
        for id in &started {
            // Fails if it has already ended, as many do together with their parent.
            kill(Pid::from_raw(*id), Signal::SIGKILL).ok();
        }
        let until = Instant::now() + EXIT_TIMEOUT;
        while let Some(id) = started.iter().find(|id| is_alive(**id)) {
            assert!(Instant::now() < until, "process {id} is still there");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child can be asked").is_none()
    }

    /// Waits for the process to exit by itself. Panics after `within`.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                return status;
            }
            assert!(Instant::now() < until, "process {} did not end within {within:?}", self.child.id());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the CPU time of a process in seconds, over all cores.
pub fn cpu_of(id: u32) -> f64 {
    let process = procfs::process::Process::new(i32::try_from(id).unwrap()).expect("the process is there");
    let stat = process.stat().expect("the process is there");
    (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
}

/// Returns the ids of all descendants of a process.
fn descendants(id: u32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = procfs::process::all_processes()
        .expect("processes can be listed")
        // Skips processes that have ended since.
        .filter_map(|process| process.ok()?.stat().ok().map(|stat| (stat.pid, stat.ppid)))
        .collect();
    let mut found = vec![i32::try_from(id).unwrap()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(id, _)| id));
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns whether a process exists and is not a zombie.
fn is_alive(id: i32) -> bool {
    procfs::process::Process::new(id).and_then(|process| process.stat()).is_ok_and(|stat| stat.state != 'Z')
}

/// The exit code and output of a program.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program to its end, with additional environment variables.
pub fn run<A: AsRef<str>>(
    program: &Path,
    folder: &Path,
    arguments: &[A],
    variables: &[(&str, &str)],
) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments.iter().map(AsRef::as_ref)).envs(variables.iter().copied()).current_dir(folder);
    run_command(command)
}

/// Runs a prepared command to its end.
pub(crate) fn run_command(mut command: Command) -> Finished {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
    let mut stderr = child.stderr.take().expect("a pipe");
    let errors = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).expect("UTF-8");
        text
    });
    let mut stdout = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("UTF-8");
    let status = child.wait().expect("the child ends");
    Finished { code: status.code().unwrap_or(-1), stdout, stderr: errors.join().expect("the reader ends") }
}
