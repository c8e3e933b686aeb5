//! Starts the process of a server, in a group of its own, and ends the whole group.
//!
//! Should the gateway itself be killed, its end of the pipe is closed, and a server whose input ends has to leave. To
//! have the kernel see to it would take `unsafe` code, which this project does not have.

#![expect(
    clippy::disallowed_types,
    reason = "a server behind the gateway may be a program, started here only"
)]

use std::{ffi::OsString, io, path::Path, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A process and all that it started. Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Child {
    child: process::Child,
    /// Its number is not given to another group before the process was waited for.
    group: Option<Pid>,
}

pub(super) fn start(
    program: &str,
    arguments: &[String],
    environment: Vec<(OsString, OsString)>,
    folder: Option<&Path>,
) -> io::Result<(Child, Pipes)> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let mut child = command.spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let child = Child { child, group };
    match pipes {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((child, Pipes { stdin, stdout, stderr })),
        _ => Err(io::Error::other("a pipe to the process is missing")),
    }
}

impl Child {
    pub(super) fn is_over(&self) -> bool {
        self.group.is_none()
    }

    /// Asks all of them to leave.
    pub(super) fn ask(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Kills what is left of them, and tells how the process ended.
    pub(super) async fn end(&mut self) -> String {
        self.signal(Signal::SIGKILL);
        self.group = None;
        match self.child.wait().await {
            Ok(status) => format!("its process ended: {status}"),
            Err(error) => format!("its process ended: {error}"),
        }
    }

    fn signal(&self, signal: Signal) {
        // All gone already is what was wanted.
        self.group.map(|group| killpg(group, signal).ok());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
