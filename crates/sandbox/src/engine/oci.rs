//! Runs jobs with runc, or another program that has its command line, on an unpacked image.
//!
//! The bundle is made of an empty root into which the folders of the image are mounted read-only. The
//! workspace is a file system in memory that the node mounts in the job's folder. The container has its own
//! user namespace, whose root is the job's user on the host and has no capabilities.

mod config;

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    mount::{MountFlags, mount},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{
    net::{UnixListener, unix::pipe},
    task::JoinSet,
};

use super::{
    Checked, Closed, EngineFacts, EngineKind, Point, Root, StartError, WORKSPACE,
    image::{self, Shown},
    record, refuse,
};
use crate::{
    cgroup::Group,
    host::{Host, find_program},
    process::{Exit, Launch, Monitor},
    proxy,
    running::{Leftovers, Sandbox, in_context},
    spec::Spec,
    staging::{Place, Staging},
};

/// The folder of sockets, and that of the root, in the folder of a job.
const SOCKETS: &str = "run";
const ROOT: &str = "root";
const LOG: &str = "log";
const PID: &str = "pid";

/// Becomes runc once it is in a control group in which it is found and killed with the node.
const GATE: &str = "read line || exit 1; exec \"$0\" \"$@\" </dev/null";

#[derive(Debug)]
pub(super) struct Oci {
    program: PathBuf,
}

impl Oci {
    pub(super) async fn open(host: &Arc<Host>) -> Result<(Self, EngineFacts), Closed> {
        let remedy = |text: &str| text.to_owned();
        let program = find_program(&host.settings.tools.runc)
            .ok_or_else(|| ("runc not found".to_owned(), remedy("install runc 1.1 or later")))?;
        if !host.has_users_for_jobs() {
            return Err(("the node is not root".into(), remedy("run it as root, or use the engine bwrap")));
        }
        let groups =
            host.cgroups().map_err(|error| (error.to_string(), remedy("jobs need them for their limits")))?;
        if host.settings.rootfs.is_empty() {
            return Err((
                "there are no images".into(),
                remedy("name the folder of an image in the node's settings"),
            ));
        }
        for path in host.settings.rootfs.values().chain([&host.settings.data]) {
            if let Some(closed) = image::closed_ancestor(path) {
                let why = format!("users of jobs cannot pass through {}", closed.display());
                return Err((why, format!("chmod o+x {}", closed.display())));
            }
        }
        // A container outlives the runc that starts it.
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            return Err((format!("cannot adopt containers: {error}"), remedy("use the engine bwrap")));
        }
        let notes = groups.missing().map(str::to_owned).into_iter().collect();
        match host.spawner.run(Launch::new(&program).args(["--version"]), &[]).await {
            Ok((Exit::Code(0), text)) => {
                let version = text.lines().next().unwrap_or_default().to_owned();
                Ok((Self { program }, EngineFacts { version, notes }))
            }
            other => Err((format!("runc does not run: {other:?}"), remedy("install runc 1.1 or later"))),
        }
    }

    pub(super) async fn start(
        &self,
        host: &Arc<Host>,
        mut spec: Spec,
        root: Root,
    ) -> Result<Sandbox, StartError> {
        let checked = Checked::new(host, &spec)?;
        let shown = match root {
            Root::Machine => image::of_machine_apart(&host.settings.read_only),
            Root::Named => {
                let digest = spec.image.clone().unwrap_or_default();
                let image = host.settings.rootfs.get(&digest).ok_or(StartError::NoImage(digest))?;
                image::shown(image).map_err(StartError::Engine)?
            }
        };
        if checked.allowed.is_some() {
            return Err(refuse(EngineKind::Oci, "proxy to hosts"));
        }
        let groups = host.cgroups().map_err(|error| StartError::Engine(io::Error::other(error)))?;
        let group = groups.group_of_all(&host.name_of(&spec.id));
        let mut leftovers = record(host, &spec.id, EngineKind::Oci, Some(group.clone()))?;
        match self.run(host, &mut spec, &shown, &group, &mut leftovers).await {
            Ok((monitor, output, work, helpers)) => Ok(Sandbox {
                monitor,
                reports_by_code: false,
                output,
                volumes: vec![work],
                helpers,
                leftovers,
                limits: spec.limits,
                term_grace: spec.term_grace,
                globs: checked.globs,
                allowed: checked.allowed,
            }),
            Err(error) => {
                leftovers.clear().await;
                Err(StartError::of_setup(error))
            }
        }
    }

    async fn run(
        &self,
        host: &Arc<Host>,
        spec: &mut Spec,
        shown: &[Shown],
        group: &Group,
        leftovers: &mut Leftovers,
    ) -> io::Result<Started> {
        let uid = host.take_uid().transpose()?;
        let uid = uid.ok_or_else(|| io::Error::other("the node is not root"))?;
        let user = uid.uid;
        leftovers.keep_uid(Some(uid));
        let folder = leftovers.folder().to_owned();
        fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
        crash::reach(Point::Recorded).await;
        make_root(&folder.join(ROOT), shown)?;
        let (work, run) = (folder.join(WORKSPACE), folder.join(SOCKETS));
        mount_workspace(&work, user, spec.limits.disk)?;
        fs::create_dir(&run)?;
        chown(&run, Some(user), Some(user))?;
        let sockets = spec.sockets.iter().map(|(_, name)| name.clone()).collect();
        let place = Place::Host { work: work.clone(), run: run.clone(), pid: None };
        let inputs = std::mem::take(&mut spec.inputs);
        let staging =
            Staging { place, uid: Some(user), files: spec.limits.files, inputs, sockets, proxy: false };
        let staged = staging.run().await?;
        let mut helpers = JoinSet::new();
        for (listener, (path, _)) in staged.sockets.into_iter().zip(&spec.sockets) {
            helpers.spawn(proxy::serve_socket(UnixListener::from_std(listener)?, path.clone()));
        }
        crash::reach(Point::Staged).await;
        group.create(&spec.limits, 0)?;
        let name = host.name_of(&spec.id);
        let groups = host.settings.cgroup.as_ref().map_or_else(|| PathBuf::from(&name), |it| it.join(&name));
        let bundle =
            config::Bundle { spec, user, root: &folder.join(ROOT), work: &work, run: &run, groups: &groups };
        fs::write(folder.join("config.json"), bundle.config(shown).to_string())?;
        let (output, output_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let output = pipe::Receiver::from_owned_fd(output)?;
        let (gate_read, gate) = pipe_with(PipeFlags::CLOEXEC)?;
        let launch = Launch::new("/bin/sh").args(["-c", GATE]).args([&self.program]);
        let launch =
            launch.args(create_arguments(host, &folder, &name)).input(gate_read).output(output_write);
        let engine_group = leftovers.engine_group().ok_or_else(|| io::Error::other("no control group"))?;
        engine_group.create_unlimited()?;
        let mut runc = host.spawner.spawn(launch).await?;
        engine_group.join(runc.id())?;
        io::Write::write_all(&mut fs::File::from(gate), b"\n")?;
        // It ends when the process of the container waits for its start, which becomes a child of the node.
        let created = runc.wait().await?;
        succeeded("runc create", created, &folder)?;
        let pid = fs::read_to_string(folder.join(PID))?.trim().parse().map_err(io::Error::other)?;
        let monitor = Monitor::of(pid)?;
        // A relative path is below the group of runc itself, where the limits are not, for the controllers
        // whose group runc was moved to.
        group.join(pid)?;
        let (started, _) = host.spawner.run(self.start_command(host, &folder, &name), &[]).await?;
        succeeded("runc start", started, &folder)?;
        Ok((monitor, output, Arc::new(staged.work), helpers))
    }

    fn start_command(&self, host: &Host, folder: &Path, name: &str) -> Launch {
        let arguments = global_arguments(host, folder).into_iter().chain(["start".into(), name.into()]);
        Launch::new(&self.program).args(arguments)
    }
}

fn succeeded(command: &str, exit: Exit, folder: &Path) -> io::Result<()> {
    if exit == Exit::Code(0) {
        return Ok(());
    }
    let log = fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    Err(io::Error::other(format!("{command}: {exit}: {}", log.lines().last().unwrap_or_default())))
}

type Started = (Monitor, pipe::Receiver, Arc<std::os::fd::OwnedFd>, JoinSet<()>);

/// Returns the command that removes a container.
pub(super) fn delete(host: &Host, name: &str) -> Vec<OsString> {
    let program = find_program(&host.settings.tools.runc).unwrap_or_else(|| "runc".into());
    let mut command = vec![program.into_os_string(), "--root".into(), state(host).into_os_string()];
    command.extend(["delete", "--force", name].map(OsString::from));
    command
}

/// The process has the pipe of the node itself, so that standard output and standard error keep their order.
fn create_arguments(host: &Host, folder: &Path, name: &str) -> Vec<OsString> {
    let mut list = global_arguments(host, folder);
    list.extend(["create", "--pid-file"].map(OsString::from));
    let pid = folder.join(PID).into_os_string();
    list.extend([pid, "--bundle".into(), folder.as_os_str().to_owned(), name.into()]);
    list
}

fn global_arguments(host: &Host, folder: &Path) -> Vec<OsString> {
    let log = folder.join(LOG).into_os_string();
    vec!["--root".into(), state(host).into_os_string(), "--log".into(), log]
}

fn state(host: &Host) -> PathBuf {
    host.settings.data.join("runc")
}

/// Makes an empty root with the places for mounts, and the links of the image.
fn make_root(root: &Path, shown: &[Shown]) -> io::Result<()> {
    let below = |at: &Path| root.join(at.strip_prefix("/").unwrap_or(at));
    for folder in ["dev", "proc", "run/cynode", "tmp", "work"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for it in shown {
        let (Shown::Link { at, .. } | Shown::Folder { at, .. } | Shown::File { at, .. }) = it;
        let place = below(at);
        fs::create_dir_all(place.parent().unwrap_or(root))?;
        match it {
            Shown::Link { target, .. } => symlink(target, place)?,
            Shown::Folder { .. } => fs::create_dir_all(place)?,
            Shown::File { .. } => drop(fs::File::create_new(place)?),
        }
    }
    Ok(())
}

/// Mounts a file system in memory of the job's user.
pub(super) fn mount_workspace(work: &Path, user: u32, bytes: u64) -> io::Result<()> {
    fs::create_dir(work)?;
    let options = format!("size={bytes},mode=0700,uid={user},gid={user}");
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    mount("cynode", work, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .map_err(|error| in_context("mounting the workspace", &error.into()))
}
