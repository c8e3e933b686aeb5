//! Runs jobs with podman or docker, on images by digest.
//!
//! The command lines are tested; whether podman or docker does what they say is not, since both need a
//! machine on which they work. The self-test of the engine decides whether a node offers it. The workspace is
//! a file system in memory that the node mounts in the job's folder, so the node must be root.

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{net::unix::pipe, task::JoinSet};

use super::{
    Checked, Closed, EngineFacts, EngineKind, StartError, WORKSPACE, environment, oci, record, refuse,
};
use crate::{
    host::{Host, find_program},
    process::{Exit, Launch, Monitor},
    running::{Leftovers, Remote, Sandbox},
    spec::{End, Spec},
    staging::{Place, Staging},
};

#[derive(Debug)]
pub(super) struct Container {
    program: PathBuf,
}

impl Container {
    pub(super) async fn open(host: &Arc<Host>) -> Result<(Self, EngineFacts), Closed> {
        let install =
            || "install podman, or name docker in the node's settings, and start its service".to_owned();
        let program =
            program(host).ok_or_else(|| ("neither podman nor docker found".to_owned(), install()))?;
        if !host.has_users_for_jobs() {
            return Err(("the node is not root".into(), "run it as root, or use the engine bwrap".into()));
        }
        let launch = Launch::new(&program).args(["info", "--format", "{{json .}}"]).env("PATH", PATH);
        match host.spawner.run(launch, &[]).await {
            Ok((Exit::Code(0), _)) => {
                let version = program.to_string_lossy().into_owned();
                Ok((
                    Self { program },
                    EngineFacts { version, notes: vec!["images must be pulled beforehand".into()] },
                ))
            }
            Ok((exit, text)) => {
                Err((format!("{} info: {exit}: {}", program.display(), text.trim()), install()))
            }
            Err(error) => Err((error.to_string(), install())),
        }
    }

    pub(super) async fn start(&self, host: &Arc<Host>, mut spec: Spec) -> Result<Sandbox, StartError> {
        let checked = Checked::new(host, &spec)?;
        let image = spec.image.clone().filter(|it| is_digest(it));
        let image = image.ok_or_else(|| StartError::NoImage(spec.image.clone().unwrap_or_default()))?;
        if checked.allowed.is_some() || !spec.sockets.is_empty() {
            return Err(refuse(EngineKind::Container, "proxy to hosts and no sockets"));
        }
        let mut leftovers = record(host, &spec.id, EngineKind::Container, None)?;
        match self.run(host, &mut spec, &image, &mut leftovers).await {
            Ok((monitor, output, work)) => Ok(Sandbox {
                monitor,
                reports_by_code: true,
                output,
                volumes: vec![work],
                helpers: JoinSet::new(),
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
        image: &str,
        leftovers: &mut Leftovers,
    ) -> io::Result<(Monitor, pipe::Receiver, Arc<std::os::fd::OwnedFd>)> {
        let uid = host.take_uid().transpose()?.ok_or_else(|| io::Error::other("the node is not root"))?;
        let user = uid.uid;
        leftovers.keep_uid(Some(uid));
        let folder = leftovers.folder().to_owned();
        fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
        let work = folder.join(WORKSPACE);
        oci::mount_workspace(&work, user, spec.limits.disk)?;
        let place = Place::Host { work: work.clone(), run: work.clone(), pid: None };
        let (inputs, files) = (std::mem::take(&mut spec.inputs), spec.limits.files);
        let staging = Staging { place, uid: Some(user), files, inputs, sockets: Vec::new(), proxy: false };
        let staged = staging.run().await?;
        let name = host.name_of(&spec.id);
        leftovers.control_by(control(&self.program, &name));
        let (output, output_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let arguments = run_arguments(spec, &name, image, user, &work);
        let launch = Launch::new(&self.program).args(arguments).env("PATH", PATH).output(output_write);
        let monitor = host.spawner.spawn(launch).await?;
        Ok((monitor, pipe::Receiver::from_owned_fd(output)?, Arc::new(staged.work)))
    }
}

/// Where podman and docker look for their helpers.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn program(host: &Host) -> Option<PathBuf> {
    find_program(&host.settings.tools.container)
}

/// Returns the command that removes a container.
pub(super) fn remove(host: &Host, name: &str) -> Vec<OsString> {
    let program = program(host).unwrap_or_else(|| "podman".into());
    command(&program, &["rm", "--force", "--volumes", name])
}

fn command(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    [program.as_os_str().to_owned()].into_iter().chain(arguments.iter().map(OsString::from)).collect()
}

fn control(program: &Path, name: &str) -> Remote {
    Remote {
        term: command(program, &["kill", "--signal", "TERM", name]),
        kill: command(program, &["kill", "--signal", "KILL", name]),
        status: command(program, &["inspect", "--format", "{{.State.OOMKilled}} {{.State.ExitCode}}", name]),
        read: read_status,
    }
}

fn read_status(text: &str) -> Option<End> {
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["true", _] => Some(End::Oom),
        ["false", code] => match code.parse().ok()? {
            code @ 129..=159 => Some(End::Signalled { signal: code - 128 }),
            code => Some(End::Exited { code }),
        },
        _ => None,
    }
}

/// Returns whether an image is named by its digest alone, or by a name and its digest.
fn is_digest(image: &str) -> bool {
    let digest = image.rsplit('@').next().and_then(|it| it.strip_prefix("sha256:"));
    digest.is_some_and(|it| it.len() == 64 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && !image.starts_with('-')
}

/// Returns the arguments that run a container to its end.
fn run_arguments(spec: &Spec, name: &str, image: &str, user: u32, work: &Path) -> Vec<OsString> {
    let limits = &spec.limits;
    let disk = limits.disk;
    let mut list: Vec<String> = [
        "run",
        "--pull=never",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--init",
        "--security-opt=no-new-privileges",
        "--ipc=private",
        "--cgroupns=private",
        "--hostname=job",
        "--workdir=/work",
        "--log-driver=none",
        "--entrypoint=",
    ]
    .map(str::to_owned)
    .into();
    list.extend([
        format!("--name={name}"),
        format!("--user={user}:{user}"),
        format!("--memory={}", limits.memory),
        format!("--memory-swap={}", limits.memory),
        format!("--pids-limit={}", u64::from(limits.pids) + 1),
        format!("--cpus={:.2}", limits.cpu),
        format!("--ulimit=nofile={0}:{0}", limits.files),
        "--ulimit=core=0:0".to_owned(),
        format!("--tmpfs=/tmp:rw,nosuid,nodev,size={disk},mode=1777"),
        format!("--shm-size={disk}"),
        format!("--volume={}:/work:rw", work.display()),
    ]);
    list.extend(environment(spec).into_iter().map(|(name, value)| format!("--env={name}={value}")));
    list.push(image.to_owned());
    list.into_iter().chain(spec.command.iter().cloned()).map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_is_confined_and_named_by_digest() {
        let mut spec = Spec::new("a", ["sh", "-c", "x; y"]);
        spec.env = vec![("A".into(), "b c".into())];
        let image = format!("docker.io/library/debian@sha256:{}", "ab".repeat(32));
        let arguments = run_arguments(&spec, "cynode-1-a", &image, 4711, Path::new("/d/work"));
        let arguments: Vec<_> = arguments.iter().map(|it| it.to_str().unwrap()).collect();
        for wanted in [
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--user=4711:4711",
            "--memory=536870912",
            "--memory-swap=536870912",
            "--pids-limit=129",
            "--cpus=1.00",
            "--pull=never",
            "--ulimit=nofile=1024:1024",
            "--volume=/d/work:/work:rw",
            "--env=A=b c",
            "--name=cynode-1-a",
        ] {
            assert!(arguments.contains(&wanted), "{wanted} {arguments:?}");
        }
        assert_eq!(arguments[arguments.len() - 4..], [image.as_str(), "sh", "-c", "x; y"]);
    }

    #[test]
    fn only_whole_digests_name_an_image() {
        let digest = format!("sha256:{}", "0".repeat(64));
        assert!(is_digest(&digest) && is_digest(&format!("a/b@{digest}")));
        for image in ["debian", "debian:12", "sha256:0", &format!("--x@{digest}"), &format!("{digest}0")] {
            assert!(!is_digest(image), "{image}");
        }
    }

    #[test]
    fn end_is_read_from_the_state_of_the_container() {
        assert_eq!(read_status("false 3\n"), Some(End::Exited { code: 3 }));
        assert_eq!(read_status("false 137\n"), Some(End::Signalled { signal: 9 }));
        assert_eq!(read_status("true 137\n"), Some(End::Oom));
        assert_eq!(read_status("no such container"), None);
    }
}
