//! Starts processes from one thread that lives as long as the host: the kernel ends a sandbox when the thread
//! that started it ends.

use std::{
    ffi::OsString,
    fmt, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc,
    thread,
};

use command_fds::{CommandFdExt, FdMapping};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::{oneshot, watch},
};

/// A thread that only waits needs little.
const MONITOR_STACK_BYTES: usize = 64 * 1024;

/// A process to start. Its environment is empty, and it inherits no descriptors but those named here.
#[derive(Debug)]
pub(crate) struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    descriptors: Vec<FdMapping>,
    uid: Option<u32>,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
}

impl Launch {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            descriptors: Vec::new(),
            uid: None,
            input: None,
            output: None,
        }
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Gives the process a descriptor under a number.
    pub(crate) fn descriptor(mut self, number: i32, descriptor: OwnedFd) -> Self {
        self.descriptors.push(FdMapping { parent_fd: descriptor, child_fd: number });
        self
    }

    /// Runs the process as this user and group, in no other groups.
    pub(crate) fn uid(mut self, uid: Option<u32>) -> Self {
        self.uid = uid;
        self
    }

    pub(crate) fn input(mut self, input: OwnedFd) -> Self {
        self.input = Some(input);
        self
    }

    /// Sends standard output and standard error to one descriptor.
    pub(crate) fn output(mut self, output: OwnedFd) -> Self {
        self.output = Some(output);
        self
    }

    #[expect(clippy::disallowed_types, reason = "a sandbox is a process")]
    fn spawn(self) -> io::Result<Child> {
        let mut command = std::process::Command::new(self.program);
        // A signal to the node's process group is not for its sandboxes.
        command.process_group(0);
        command.args(self.arguments).env_clear().envs(self.environment).current_dir("/");
        command.stdin(self.input.map_or_else(Stdio::null, Stdio::from));
        match self.output {
            Some(output) => command.stdout(output.try_clone()?).stderr(output),
            None => command.stdout(Stdio::null()).stderr(Stdio::null()),
        };
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command.fd_mappings(self.descriptors).map_err(io::Error::other)?;
        command.spawn()
    }
}

/// The script of the keeper: waits for the end of the node, then kills all processes in its control groups.
const KEEPER: &str = "read line; for group in \"$1/$2\"*; do echo 0 >\"$group/pids.max\"; done 2>/dev/null; \
     while pids=$(cat \"$1/$2\"*/cgroup.procs \"$1/$2\"*/*/cgroup.procs 2>/dev/null); [ -n \"$pids\" ]; do \
     kill -9 $pids 2>/dev/null; done";

/// Starts a process that kills what this one leaves in control groups if it is killed itself.
///
/// The kernel ends a sandbox with the thread that started it, but not within the first moments of the
/// sandbox, and not containers, which have other parents. Returns what must stay open as long as the node
/// lives.
pub(crate) fn start_keeper(parent: &Path, prefix: &str) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let launch = Launch::new("/bin/sh").args(["-c", KEEPER, "cynode-keeper"]).args([parent]).args([prefix]);
    let mut child = launch.env("PATH", "/usr/bin:/bin").input(read).spawn()?;
    thread::Builder::new().name("sandbox-keeper".into()).stack_size(MONITOR_STACK_BYTES).spawn(
        move || {
            child.wait().map(|_| ()).unwrap_or_default();
        },
    )?;
    Ok(write)
}

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct Spawner(mpsc::Sender<(Launch, oneshot::Sender<io::Result<Child>>)>);

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, received) = mpsc::channel::<(Launch, oneshot::Sender<io::Result<Child>>)>();
        thread::Builder::new().name("sandbox-spawner".into()).spawn(move || {
            for (launch, reply) in received {
                // A start that was given up: the child is killed, so that it does not stay as it is.
                if let Err(Ok(mut child)) = reply.send(launch.spawn()) {
                    child.kill().and_then(|()| child.wait()).map(|_| ()).unwrap_or_default();
                }
            }
        })?;
        Ok(Self(requests))
    }

    pub(crate) async fn spawn(&self, launch: Launch) -> io::Result<Monitor> {
        let (reply, spawned) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes ended");
        self.0.send((launch, reply)).map_err(|_| gone())?;
        Monitor::new(&mut spawned.await.map_err(|_| gone())??)
    }

    /// Runs a program to its end and returns how it ended and its output, both streams together.
    pub(crate) async fn run(&self, launch: Launch, input: &[u8]) -> io::Result<(Exit, String)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (input_read, input_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut monitor = self.spawn(launch.output(write).input(input_read)).await?;
        let mut feed = pipe::Sender::from_owned_fd(input_write)?;
        let mut output = pipe::Receiver::from_owned_fd(read)?;
        let mut text = Vec::new();
        let fed = async {
            // A program that does not read its input still ends.
            feed.write_all(input).await.unwrap_or_default();
            drop(feed);
        };
        let ((), read) = tokio::join!(fed, output.read_to_end(&mut text));
        read?;
        Ok((monitor.wait().await?, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A child process. Dropped while it runs, it is killed and reaped.
#[derive(Debug)]
pub(crate) struct Monitor {
    pid: Pid,
    pidfd: OwnedFd,
    exit: watch::Receiver<Option<Exit>>,
}

impl Monitor {
    fn new(child: &mut Child) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        Self::of(pid)
            .inspect_err(|_| child.kill().and_then(|()| child.wait()).map(|_| ()).unwrap_or_default())
    }

    /// Watches a child of this process from a thread of its own, which reaps it.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("process without an id"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let (ended, exit) = watch::channel(None);
        thread::Builder::new().name("sandbox-monitor".into()).stack_size(MONITOR_STACK_BYTES).spawn(
            move || {
                ended.send_replace(reap(pid));
            },
        )?;
        Ok(Self { pid, pidfd, exit })
    }

    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for the end. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        let exit = self.exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        exit.ok_or_else(|| io::Error::other("the process is not a child of the node"))
    }
}

fn reap(pid: Pid) -> Option<Exit> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                let signal = || Exit::Signal(status.terminating_signal().unwrap_or_default());
                return Some(status.exit_status().map_or_else(signal, Exit::Code));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // A process that has ended is not killed: its descriptor names no other one.
        pidfd_send_signal(&self.pidfd, Signal::KILL).unwrap_or_default();
    }
}
