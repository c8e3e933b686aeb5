//! The arguments of `bwrap`: what the sandbox consists of.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::super::{
    environment,
    image::{self, Shown},
};
use crate::spec::Spec;

// Descriptors of the bwrap process.
pub(super) const ARGUMENTS: i32 = 3;
pub(super) const INFO: i32 = 4;
pub(super) const READY: i32 = 5;
pub(super) const FILTER: i32 = 6;
pub(super) const LOCK: i32 = 7;
pub(super) const FIRST_FILE: i32 = 8;

/// The user and the group of the job in the sandbox.
const USER: &str = "1000";
/// Room for sockets.
const RUN_BYTES: u64 = 64 * 1024;

/// Returns the arguments that show files and folders of the host, read-only.
pub(super) fn host_root(read_only: &[PathBuf]) -> Vec<String> {
    image::of_machine(read_only).into_iter().flat_map(argument).collect()
}

/// Returns the arguments that show the files of an image, read-only.
pub(super) fn image_root(folder: &Path) -> io::Result<Vec<String>> {
    Ok(image::shown(folder)?.into_iter().flat_map(argument).collect())
}

fn argument(shown: Shown) -> [String; 3] {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    match shown {
        Shown::Link { target, at } => ["--symlink".into(), text(target), text(at)],
        Shown::Folder { source, at } | Shown::File { source, at } => {
            ["--ro-bind".into(), text(source), text(at)]
        }
    }
}

/// Returns the files that the sandbox has instead of the host's. An image has its own.
pub(super) fn files(has_image: bool) -> Vec<(&'static str, &'static str)> {
    if has_image {
        return Vec::new();
    }
    vec![
        ("/etc/passwd", "job:x:1000:1000:job:/work:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        ("/etc/group", "job:x:1000:\nnogroup:x:65534:\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ]
}

/// Returns all arguments, each ended by a NUL byte.
pub(super) fn all(spec: &Spec, root: &[String], has_lock: bool, files: &[(&str, &str)]) -> Vec<u8> {
    let mut list = List::default();
    for namespace in ["user", "pid", "net", "ipc", "uts", "cgroup"] {
        list.add([&format!("--unshare-{namespace}")]);
    }
    list.add(["--disable-userns", "--die-with-parent", "--new-session", "--hostname", "job"]);
    list.add(["--uid", USER, "--gid", USER]);
    for (option, descriptor) in [("--info-fd", INFO), ("--block-fd", READY), ("--seccomp", FILTER)] {
        list.add([option, &descriptor.to_string()]);
    }
    if has_lock {
        list.add(["--sync-fd", &LOCK.to_string()]);
    }
    root.iter().for_each(|argument| list.add([argument]));
    list.add(["--proc", "/proc", "--dev", "/dev"]);
    list.memory("/dev/shm", "1777", spec.limits.disk);
    list.memory("/tmp", "1777", spec.limits.disk);
    list.memory("/run/cynode", "0755", RUN_BYTES);
    list.memory("/work", "0700", spec.limits.disk);
    for (number, (path, _)) in (FIRST_FILE..).zip(files) {
        list.add(["--perms", "0644", "--file", &number.to_string(), path]);
    }
    if spec.image.is_none() {
        list.add(["--symlink", "/tmp", "/var/tmp"]);
    }
    // Both are file systems in memory without a size.
    list.add(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]);
    for (name, value) in environment(spec) {
        list.add(["--setenv", &name, &value]);
    }
    list.0
}

#[derive(Default)]
struct List(Vec<u8>);

impl List {
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        for argument in arguments {
            self.0.extend_from_slice(argument.as_bytes());
            self.0.push(0);
        }
    }

    /// Adds a file system in memory.
    fn memory(&mut self, path: &str, mode: &str, bytes: u64) {
        self.add(["--perms", mode, "--size", &bytes.to_string(), "--tmpfs", path]);
    }
}
