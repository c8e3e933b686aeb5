//! What exists on the host because of one job, and its removal.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::ASK_TO_END;
use crate::{
    cgroup::Group,
    host::{JobFolder, UidLease},
    process::{Exit, Launch, Spawner},
    spec::End,
};

/// Additional cleanup of an engine. Kept small, so that a restarted node can do it as well.
#[derive(Debug, Default)]
pub(crate) struct Teardown {
    /// Programs to run, each with its arguments.
    pub(crate) commands: Vec<Vec<OsString>>,
    /// A folder to unmount.
    pub(crate) mount: Option<std::path::PathBuf>,
}

/// A sandbox that another program runs, such as podman's or a cluster's: commands instead of a control group.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Asks it to end.
    pub(crate) term: Vec<OsString>,
    pub(crate) kill: Vec<OsString>,
    /// Prints how it ended.
    pub(crate) status: Vec<OsString>,
    /// Reads what `status` printed.
    pub(crate) read: fn(&str) -> Option<End>,
}

/// What exists on the host because of one job. Dropped without [`clear`](Self::clear), it ends the processes.
#[derive(Debug)]
pub(crate) struct Leftovers {
    group: Option<Group>,
    engine_group: Option<Group>,
    /// The first process of the sandbox: with it all processes of its namespace end.
    init: Option<OwnedFd>,
    folder: Option<JobFolder>,
    /// Freed by drop, after the processes are gone.
    _uid: Option<UidLease>,
    teardown: Teardown,
    remote: Option<Remote>,
    host: Arc<crate::host::Host>,
    is_cleared: bool,
}

impl Leftovers {
    pub(crate) fn new(
        host: Arc<crate::host::Host>,
        (group, engine_group): (Option<Group>, Option<Group>),
        folder: JobFolder,
    ) -> Self {
        let teardown = Teardown::default();
        let (folder, remote) = (Some(folder), None);
        Self {
            group,
            engine_group,
            init: None,
            folder,
            _uid: None,
            teardown,
            remote,
            host,
            is_cleared: false,
        }
    }

    pub(crate) fn keep_uid(&mut self, uid: Option<UidLease>) {
        self._uid = uid;
    }

    pub(crate) fn keep_init(&mut self, init: OwnedFd) {
        self.init = Some(init);
    }

    pub(crate) fn tear_down_by(&mut self, teardown: Teardown) {
        self.teardown = teardown;
    }

    pub(crate) fn control_by(&mut self, remote: Remote) {
        self.remote = Some(remote);
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.as_ref().map_or(std::path::Path::new("/nonexistent"), JobFolder::path)
    }

    /// Sends SIGTERM to the job, but not to the monitor if that is a process beside it.
    pub(super) async fn ask_to_end(&self, monitor: i32, is_beside: bool) {
        if let Some(remote) = &self.remote {
            run(&self.host.spawner, &remote.term).await.map(|_| ()).unwrap_or_default();
        }
        let except: &[i32] = if is_beside { &[monitor] } else { &[] };
        if let Some(group) = &self.group {
            ASK_TO_END.into_iter().for_each(|signal| group.signal(signal, except));
        }
    }

    /// Kills what the node does not run itself.
    pub(super) async fn kill_remote(&self) -> io::Result<()> {
        match &self.remote {
            Some(remote) => run(&self.host.spawner, &remote.kill).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Asks another program how the job ended.
    pub(super) async fn remote_end(&self) -> Option<End> {
        let remote = self.remote.as_ref()?;
        let text = run(&self.host.spawner, &remote.status).await.ok()?;
        Some(
            (remote.read)(&text)
                .unwrap_or_else(|| End::EngineFailed { why: format!("unknown end: {}", text.trim()) }),
        )
    }

    /// Returns the control group of the engine's own processes.
    pub(crate) fn engine_group(&self) -> Option<&Group> {
        self.engine_group.as_ref()
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.engine_group.iter().chain(&self.group)
    }

    pub(super) fn kill(&self) {
        if let Some(init) = &self.init {
            pidfd_send_signal(init, Signal::KILL).unwrap_or_default();
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    pub(super) async fn empty(&self) -> io::Result<()> {
        if let Some(group) = &self.group {
            group.empty().await?;
        }
        if let Some(init) = &self.init {
            // It is a child of the node if its monitor ended first and the node adopts processes.
            waitid(WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
                .map(|_| ())
                .unwrap_or_default();
        }
        Ok(())
    }

    pub(super) fn used(&self) -> (u64, u64) {
        self.group.as_ref().map(Group::used).unwrap_or_default()
    }

    pub(super) fn oom_kills(&self) -> u64 {
        self.group.as_ref().map(Group::oom_kills).unwrap_or_default()
    }

    /// Kills and removes all of it.
    pub(crate) async fn clear(mut self) {
        self.kill();
        // An engine that still sets the job up would go on otherwise.
        let engine_emptied = match &self.engine_group {
            Some(group) => group.empty().await,
            None => Ok(()),
        };
        let emptied = engine_emptied.and(self.empty().await);
        crash::reach("Emptied").await;
        let removed = async {
            emptied?;
            self.teardown.run(&self.host.spawner).await?;
            self.groups().try_for_each(Group::remove)
        };
        let removed = removed.await;
        self.is_cleared = true;
        match removed {
            Ok(()) => self.folder.iter().for_each(JobFolder::remove),
            // Its record stays, so that the next start tries again.
            Err(error) => {
                tracing::error!(%error, "Sandbox not removed; the next start of the node tries again.")
            }
        }
    }
}

impl Teardown {
    pub(crate) async fn run(&self, spawner: &Spawner) -> io::Result<()> {
        for command in &self.commands {
            run(spawner, command).await?;
        }
        self.unmount()
    }

    fn unmount(&self) -> io::Result<()> {
        match &self.mount {
            Some(mount) => match rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH) {
                // Not mounted, or gone.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            },
            None => Ok(()),
        }
    }
}

/// Runs a command and returns what it printed.
async fn run(spawner: &Spawner, command: &[OsString]) -> io::Result<String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(String::new()) };
    let (exit, text) = spawner.run(Launch::new(program).args(arguments), &[]).await?;
    if exit != Exit::Code(0) {
        tracing::debug!(%exit, text = text.trim(), "Command of an engine failed.");
    }
    Ok(text)
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if self.is_cleared {
            return;
        }
        // The runtime is shutting down: nothing can be awaited.
        self.kill();
        for _ in 0..500 {
            if self.groups().all(|group| group.processes().is_empty()) {
                break;
            }
            self.groups().for_each(Group::kill);
            thread::sleep(Duration::from_millis(1));
        }
        let is_unmounted = self.teardown.unmount().is_ok();
        if self.groups().all(|group| group.remove().is_ok())
            && self.teardown.commands.is_empty()
            && is_unmounted
        {
            self.folder.iter().for_each(JobFolder::remove);
        }
    }
}
