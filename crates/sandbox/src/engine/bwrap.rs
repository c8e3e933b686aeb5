//! Runs jobs with bubblewrap.
//!
//! The order of a start: the record is written; `bwrap` is started as the job's user and waits for its
//! arguments; it joins the job's control group; it gets its arguments, sets the sandbox up and waits for its
//! filter of system calls; inputs and sockets are put into the sandbox; the filter is written, and the
//! process runs. A node that dies at any point leaves at most the record and an empty control group: `bwrap`
//! gets the end of a pipe instead of arguments or filter and stops, and the kernel kills a sandbox whose node
//! is gone.

mod arguments;

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustix::{
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixListener, UnixStream, unix::pipe},
    task::JoinSet,
    time::timeout,
};

use super::{Checked, Closed, EngineFacts, EngineKind, Point, StartError, StartSignal, record};
use crate::{
    cgroup::Group,
    host::{Host, find_program},
    process::{Exit, Launch, Monitor},
    proxy,
    running::{Leftovers, Sandbox, in_context},
    seccomp,
    spec::Spec,
    staging::{Place, Staged, Staging, WorkspaceFull},
};

/// How long the setup of a sandbox may take.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// The monitor and the first process of the sandbox.
const HELPERS: u32 = 2;
/// The largest pipe that every user may have.
const MAX_PIPE_BYTES: usize = 1 << 20;
/// Options that older versions do not have.
const NEEDED_OPTIONS: [&str; 4] = ["--disable-userns", "--size", "--perms", "--seccomp"];

#[derive(Debug)]
pub(super) struct Bwrap {
    program: PathBuf,
    filter: Vec<u8>,
    /// The arguments that show the host's programs.
    host_root: Vec<String>,
}

impl Bwrap {
    pub(super) async fn open(host: &Arc<Host>) -> Result<(Self, EngineFacts), Closed> {
        let install = || "install bubblewrap 0.8 or later".to_owned();
        let program =
            find_program(&host.settings.tools.bwrap).ok_or_else(|| ("bwrap not found".into(), install()))?;
        let groups = host.cgroups().map_err(|error| {
            (error.to_string(), "memory and processes of a job cannot be limited without them".to_owned())
        })?;
        let run = async |option: &str| host.spawner.run(Launch::new(&program).args([option]), &[]).await;
        let (version, help) = match (run("--version").await, run("--help").await) {
            (Ok((_, version)), Ok((Exit::Code(0), help))) => (version, help),
            (first, _) => return Err((format!("bwrap does not run: {first:?}"), install())),
        };
        if let Some(missing) = NEEDED_OPTIONS.iter().find(|option| !help.contains(**option)) {
            return Err((format!("bwrap has no option {missing}"), install()));
        }
        let filter = seccomp::filter().map_err(|error| {
            (format!("no filter for system calls: {error}"), "use another machine".to_owned())
        })?;
        let host_root = arguments::host_root(&host.settings.read_only);
        let mut notes: Vec<_> = groups.missing().map(str::to_owned).into_iter().collect();
        if !host.has_users_for_jobs() {
            notes.push(
                "the node is not root: jobs share its user, and cannot be allowed to reach hosts".into(),
            );
        }
        let version = version.trim().trim_start_matches("bubblewrap ").to_owned();
        let engine = Self { program, filter, host_root };
        engine.try_out(host).await.map_err(|why| {
            let remedy = if why.contains("execvp") {
                "show jobs the folders of this machine's programs and their libraries (sandbox.read_only)"
            } else {
                "allow user namespaces for bwrap (sysctl user.max_user_namespaces, \
                 kernel.apparmor_restrict_unprivileged_userns, seccomp of the container)"
            };
            (why, remedy.to_owned())
        })?;
        Ok((engine, EngineFacts { version, notes }))
    }

    /// Runs a job that does nothing.
    async fn try_out(&self, host: &Arc<Host>) -> Result<(), String> {
        let spec = Spec::new(format!("try-{}", std::process::id()), ["true"]);
        let (sandbox, go) = self.prepare(host, spec).await.map_err(|error| match error {
            StartError::Engine(source) => source.to_string(),
            other => other.to_string(),
        })?;
        go.start().map_err(|error| error.to_string())?;
        let (sink, mut output) = tokio::sync::mpsc::channel(16);
        let mut running = crate::running::Running::supervise(host, sandbox, 0, sink);
        let mut text = Vec::new();
        while let Some(chunk) = output.recv().await {
            text.extend_from_slice(&chunk);
        }
        let end = running.wait().await;
        running.remove().await;
        match end {
            crate::spec::End::Exited { code: 0 } => Ok(()),
            end => Err(format!("`true` ended as {end:?}: {}", String::from_utf8_lossy(&text).trim())),
        }
    }

    pub(super) async fn prepare(
        &self,
        host: &Arc<Host>,
        spec: Spec,
    ) -> Result<(Sandbox, StartSignal), StartError> {
        let checked = Checked::new(host, &spec)?;
        let root = match &spec.image {
            None => self.host_root.clone(),
            Some(digest) => {
                let folder =
                    host.settings.rootfs.get(digest).ok_or_else(|| StartError::NoImage(digest.clone()))?;
                arguments::image_root(folder).map_err(StartError::Engine)?
            }
        };
        let groups = host.cgroups().map_err(|error| StartError::Engine(io::Error::other(error)))?;
        let group = groups.group(&host.name_of(&spec.id));
        let mut leftovers = record(host, &spec.id, EngineKind::Bwrap, Some(group.clone()))?;
        let starting = Starting { engine: self, host, spec, checked, group, root };
        let prepared = timeout(SETUP_TIMEOUT, starting.prepare(&mut leftovers)).await;
        let prepared = prepared.unwrap_or_else(|_| Err(io::Error::other("setting up took too long")));
        match prepared {
            Ok((half, go)) => Ok((half.with(leftovers), go)),
            Err(error) => {
                leftovers.clear().await;
                Err(StartError::of_setup(error))
            }
        }
    }
}

struct Starting<'a> {
    engine: &'a Bwrap,
    host: &'a Arc<Host>,
    spec: Spec,
    checked: Checked,
    group: Group,
    root: Vec<String>,
}

/// A sandbox without what it leaves.
struct Prepared {
    monitor: Monitor,
    output: pipe::Receiver,
    volumes: Vec<Arc<OwnedFd>>,
    helpers: JoinSet<()>,
    spec: Spec,
    checked: Checked,
}

impl Prepared {
    fn with(self, leftovers: Leftovers) -> Sandbox {
        Sandbox {
            monitor: self.monitor,
            reports_by_code: true,
            output: self.output,
            volumes: self.volumes,
            helpers: self.helpers,
            leftovers,
            limits: self.spec.limits,
            term_grace: self.spec.term_grace,
            globs: self.checked.globs,
            allowed: self.checked.allowed,
        }
    }
}

impl Starting<'_> {
    async fn prepare(mut self, leftovers: &mut Leftovers) -> io::Result<(Prepared, StartSignal)> {
        let uid = self.host.take_uid().transpose()?;
        if self.checked.allowed.is_some() && uid.is_none() {
            return Err(io::Error::other("a job can be allowed to reach hosts only by a node that is root"));
        }
        let user = uid.as_ref().map(|it| it.uid);
        let (arguments_read, arguments) = pipe_with(PipeFlags::CLOEXEC)?;
        let (info, info_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (filter_read, filter) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, output_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (mut ready, ready_inside) = UnixStream::pair()?;
        // Read at once, and closed when the sandbox is set up, which ends the stream.
        ready.write_all(b"x").await?;
        let files = arguments::files(self.spec.image.is_some());
        let mut launch = Launch::new(&self.engine.program)
            .uid(user)
            .output(output_write)
            .descriptor(arguments::ARGUMENTS, arguments_read)
            .descriptor(arguments::INFO, info_write)
            .descriptor(arguments::READY, ready_inside.into_std()?.into())
            .descriptor(arguments::FILTER, filter_read);
        if let Some(uid) = &uid {
            launch = launch.descriptor(arguments::LOCK, uid.lock.try_clone()?.into());
        }
        for (number, (_, content)) in (arguments::FIRST_FILE..).zip(&files) {
            launch = launch.descriptor(number, pipe_with_content(content)?);
        }
        let launch = launch
            .args(["--args".to_owned(), arguments::ARGUMENTS.to_string(), "--".to_owned()])
            .args(self.spec.command.iter());
        let all = arguments::all(&self.spec, &self.root, user.is_some(), &files);
        crash::reach(Point::Recorded).await;
        self.group.create(&self.spec.limits, HELPERS)?;
        crash::reach(Point::Grouped).await;
        let monitor = self.host.spawner.spawn(launch).await?;
        leftovers.keep_uid(uid);
        crash::reach(Point::Spawned).await;
        self.group.join(monitor.id())?;
        crash::reach(Point::Joined).await;
        write_at_once(arguments, &all)?;
        let mut output = pipe::Receiver::from_owned_fd(output)?;
        match self.set_up(info, &mut ready, user, leftovers).await {
            Ok((staged, helpers)) => {
                crash::reach(Point::Staged).await;
                let volumes = [Some(staged.work), staged.tmp].into_iter().flatten().map(Arc::new).collect();
                let go = StartSignal::Write(File::from(filter), self.engine.filter.clone());
                let Self { spec, checked, .. } = self;
                Ok((Prepared { monitor, output, volumes, helpers, spec, checked }, go))
            }
            Err(error) => {
                self.group.kill();
                let mut said = Vec::new();
                output.read_to_end(&mut said).await?;
                if error.get_ref().is_some_and(|source| source.is::<WorkspaceFull>()) {
                    return Err(error);
                }
                let said = String::from_utf8_lossy(&said);
                Err(in_context(if said.is_empty() { "setting up" } else { said.trim() }, &error))
            }
        }
    }

    /// Waits until the sandbox is set up, and puts into it what the job needs.
    async fn set_up(
        &mut self,
        info: OwnedFd,
        ready: &mut UnixStream,
        user: Option<u32>,
        leftovers: &mut Leftovers,
    ) -> io::Result<(Staged, JoinSet<()>)> {
        let pid = first_process(info).await?;
        ready.read_to_end(&mut Vec::new()).await?;
        let named = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
        leftovers.keep_init(pidfd_open(named, PidfdFlags::empty())?);
        let staging = Staging {
            place: Place::Inside(pid),
            uid: user,
            files: self.spec.limits.files,
            inputs: std::mem::take(&mut self.spec.inputs),
            sockets: self.spec.sockets.iter().map(|(_, name)| name.clone()).collect(),
            proxy: self.checked.allowed.is_some(),
        };
        let mut staged = staging.run().await?;
        let mut helpers = JoinSet::new();
        if let (Some(listener), Some(allowed)) = (staged.proxy.take(), &self.checked.allowed) {
            helpers.spawn(proxy::serve_proxy(TcpListener::from_std(listener)?, allowed.clone()));
        }
        for (listener, (path, _)) in staged.sockets.drain(..).zip(&self.spec.sockets) {
            helpers.spawn(proxy::serve_socket(UnixListener::from_std(listener)?, path.clone()));
        }
        Ok((staged, helpers))
    }
}

/// Reads which process is the first of the sandbox.
async fn first_process(info: OwnedFd) -> io::Result<i32> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Info {
        child_pid: i32,
    }
    let mut text = Vec::new();
    pipe::Receiver::from_owned_fd(info)?.read_to_end(&mut text).await?;
    let info: Info = serde_json::from_slice(&text).map_err(|_| io::Error::other("bwrap gave up"))?;
    Ok(info.child_pid)
}

/// Writes all or nothing, whatever happens to this process: a part of the arguments must never be used.
fn write_at_once(pipe: OwnedFd, content: &[u8]) -> io::Result<()> {
    if content.len() > fcntl_setpipe_size(&pipe, MAX_PIPE_BYTES)? {
        return Err(io::Error::other("the arguments of the sandbox are too long"));
    }
    let written = File::from(pipe).write(content)?;
    if written == content.len() { Ok(()) } else { Err(io::Error::other("the arguments were not written")) }
}

fn pipe_with_content(content: &str) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    File::from(write).write_all(content.as_bytes())?;
    Ok(read)
}
