//! Reaches into a sandbox that is set up and waits: puts files and sockets there as the job's user.
//!
//! The workspace is a file system in memory that exists in the sandbox's mount namespace only. A descriptor
//! of it keeps it after the sandbox has ended, so that files can be collected; nothing is left when that is
//! closed.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    thread,
};

use rustix::{
    fs::{FsWord, Mode, OFlags, fchmod, fstatfs, mkdirat, open, openat},
    process::{Gid, Pid, Resource, Rlimit, Uid, geteuid, prlimit},
    thread::{
        LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use tokio::sync::oneshot;

use crate::spec::InputFile;

/// Where the proxy listens in a sandbox that may reach hosts.
pub(crate) const PROXY_PORT: u16 = 3128;
/// How folders are opened.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// Where the folders of a job are.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the mount namespace of the first process of the sandbox, which gets its limits here too.
    Inside(i32),
    /// On the host: the workspace, the folder of sockets, and the process whose network namespace it is.
    Host { work: PathBuf, run: PathBuf, pid: Option<i32> },
}

/// The files and sockets to put into a sandbox.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) place: Place,
    /// The user of the job, if it is not this process' own.
    pub(crate) uid: Option<u32>,
    /// How many files a process of the job may have open.
    pub(crate) files: u32,
    pub(crate) inputs: Vec<InputFile>,
    /// Names of sockets below `/run/cynode`.
    pub(crate) sockets: Vec<String>,
    /// Whether to listen for the proxy.
    pub(crate) proxy: bool,
}

/// The inputs of a job do not fit into its workspace. The job's fault, not the machine's: the workspace is as
/// large as the job's limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "have {inputs} bytes in {files} files and do not fit into the workspace, of {workspace} bytes; each \
     takes whole pages, so give the job a larger disk (`disk_mb`) or fewer files"
)]
pub(crate) struct WorkspaceFull {
    inputs: u64,
    files: usize,
    workspace: u64,
}

/// The staged files and sockets.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) work: OwnedFd,
    pub(crate) tmp: Option<OwnedFd>,
    pub(crate) sockets: Vec<UnixListener>,
    pub(crate) proxy: Option<TcpListener>,
}

impl Staging {
    /// Stages on a dedicated thread, which drops its privileges permanently.
    pub(crate) async fn run(self) -> io::Result<Staged> {
        let (reply, staged) = oneshot::channel();
        thread::Builder::new().name("sandbox-staging".into()).spawn(move || {
            // The receiver is gone if the start was given up.
            drop(reply.send(self.stage()));
        })?;
        staged.await.map_err(|_| io::Error::other("the staging thread ended"))?
    }

    fn stage(self) -> io::Result<Staged> {
        let uid = self.uid.unwrap_or_else(|| geteuid().as_raw());
        let (folders, pid) = match &self.place {
            Place::Inside(pid) => (open_inside(*pid, uid)?, Some(*pid)),
            Place::Host { work, run, pid } => {
                let [work, run] = [work, run].map(|path| open(path, FOLDER, Mode::empty()));
                (Folders { work: work?, tmp: None, run: run? }, *pid)
            }
        };
        let Folders { work, tmp, run } = folders;
        let proxy = match (self.proxy, pid) {
            (true, Some(pid)) => Some(listen_inside(pid)?),
            (true, None) => return Err(io::Error::other("this engine has no network namespace for a proxy")),
            (false, _) => None,
        };
        if let Some(uid) = self.uid {
            become_user(uid)?;
        }
        if let Place::Inside(pid) = self.place {
            limit_resources(pid, self.files)?;
        }
        let size = (self.inputs.iter().map(|input| input.content.len() as u64).sum(), self.inputs.len());
        // Each is freed when it is written: the node does not hold all of them twice.
        for input in self.inputs {
            write_input(&work, &input).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull => io::Error::new(error.kind(), full(&work, size)),
                kind => io::Error::new(kind, format!("writing input {}: {error}", input.path)),
            })?;
        }
        let bind = |name: &String| {
            let path = format!("/proc/thread-self/fd/{}/{name}", run.as_raw_fd());
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let sockets = self.sockets.iter().map(bind).collect::<io::Result<_>>()?;
        Ok(Staged { work, tmp, sockets, proxy })
    }
}

/// The folders of a job, open.
struct Folders {
    work: OwnedFd,
    tmp: Option<OwnedFd>,
    run: OwnedFd,
}

fn open_inside(pid: i32, uid: u32) -> io::Result<Folders> {
    let own = fs::read_link("/proc/self/ns/mnt")?;
    if fs::read_link(format!("/proc/{pid}/ns/mnt"))? == own {
        return Err(io::Error::other("the sandbox has no mount namespace"));
    }
    let [work, tmp, run] =
        ["work", "tmp", "run/cynode"].map(|name| open_memory(&format!("/proc/{pid}/root/{name}"), uid));
    Ok(Folders { work: work?, tmp: Some(tmp?), run: run? })
}

/// Opens a folder of the sandbox that must be a file system in memory of the job's user.
fn open_memory(path: &str, uid: u32) -> io::Result<OwnedFd> {
    let folder = open(path, FOLDER, Mode::empty())?;
    let status = rustix::fs::fstat(&folder)?;
    if fstatfs(&folder)?.f_type != TMPFS_MAGIC || status.st_uid != uid {
        return Err(io::Error::other("the sandbox has no workspace of its own"));
    }
    Ok(folder)
}

/// Listens on the loopback interface of the sandbox. The thread stays in its network namespace.
fn listen_inside(pid: i32) -> io::Result<TcpListener> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Switches this thread to the job's user, without capabilities.
fn become_user(uid: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Sets what control groups do not limit. The process waits; all that it starts inherits this.
fn limit_resources(pid: i32, files: u32) -> io::Result<()> {
    let process = Pid::from_raw(pid);
    for (resource, limit) in [
        (Resource::Nofile, u64::from(files)),
        (Resource::Core, 0),
        (Resource::Memlock, 64 * 1024),
        (Resource::Rtprio, 0),
    ] {
        prlimit(process, resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    // If the machine is out of memory, jobs are killed first.
    fs::write(format!("/proc/{pid}/oom_score_adj"), "500").unwrap_or_default();
    Ok(())
}

fn full(work: &OwnedFd, (inputs, files): (u64, usize)) -> WorkspaceFull {
    let workspace = fstatfs(work).map(|it| it.f_blocks.saturating_mul(it.f_bsize.unsigned_abs()));
    WorkspaceFull { inputs, files, workspace: workspace.unwrap_or_default() }
}

fn write_input(work: &OwnedFd, input: &InputFile) -> io::Result<()> {
    for (at, _) in input.path.match_indices('/') {
        let folder = &input.path[..at];
        match mkdirat(work, folder, Mode::from_raw_mode(0o755)) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
            _ => {}
        }
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(work, input.path.as_str(), flags, Mode::from_raw_mode(0o600))?);
    file.write_all(&input.content)?;
    fchmod(&file, Mode::from_raw_mode(if input.executable { 0o755 } else { 0o644 }))?;
    Ok(())
}
