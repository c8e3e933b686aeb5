//! Jobs of the engine `oci`: runc on an unpacked image.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{End, EngineKind, Host, HostSettings, InputFile, Spec, StartError, Stop};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::kit::{Kit, assert_nothing_left, settings, sh};

pub(crate) const IMAGE: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
const PROGRAMS: [&str; 14] = [
    "cat", "dash", "grep", "head", "id", "ls", "mkdir", "mount", "setsid", "sleep", "tail", "touch", "tr",
    "unshare",
];

/// Makes an image of some programs of this machine and their libraries, of which `dash` is the shell.
#[expect(clippy::disallowed_types, reason = "the test asks which libraries a program needs")]
fn make_image(folder: &Path, programs: &[&str]) {
    fs::create_dir_all(folder.join("usr/bin")).unwrap();
    let listed: Vec<_> = programs.iter().map(|name| format!("/usr/bin/{name}")).collect();
    let libraries = std::process::Command::new("ldd").args(&listed).output().unwrap();
    assert!(libraries.status.success(), "{libraries:?}");
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let paths =
        libraries.split_whitespace().filter(|it| it.starts_with("/lib") || it.starts_with("/usr/lib"));
    for path in paths.map(str::to_owned).chain(listed) {
        let real = if path.starts_with("/usr") { path.clone() } else { format!("/usr{path}") };
        let target = folder.join(&real[1..]);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), folder.join(name)).unwrap();
    }
    if programs.contains(&"dash") {
        symlink("dash", folder.join("usr/bin/sh")).unwrap();
    }
    fs::create_dir(folder.join("etc")).unwrap();
    fs::write(folder.join("etc/secret"), "of the image").unwrap();
    fs::set_permissions(folder.join("etc/secret"), fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn image_settings(data: &TempDir) -> HostSettings {
    image_settings_of(data, &PROGRAMS)
}

/// Returns the settings of a node that has one image, with these programs.
pub(crate) fn image_settings_of(data: &TempDir, programs: &[&str]) -> HostSettings {
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o711)).unwrap();
    make_image(&data.path().join("image"), programs);
    let mut settings = settings(data);
    settings.rootfs.insert(IMAGE.into(), data.path().join("image"));
    settings
}

async fn kit() -> Kit {
    Kit::open(EngineKind::Oci, image_settings).await
}

pub(crate) fn script(text: &str) -> Spec {
    Spec { image: Some(IMAGE.into()), ..sh(text) }
}

#[tokio::test]
async fn job_runs_on_its_image_and_leaves_nothing() {
    let kit = kit().await;
    let mut spec = script(
        "cat in/a; for i in 1 2 3; do echo $i; echo e >&2; done; id -u; ls /; echo made >out; \
         cat /etc/secret; echo x >/usr/x; exit 3",
    );
    spec.inputs = vec![InputFile { path: "in/a".into(), content: "given\n".into(), executable: false }];
    spec.outputs = vec!["out".into()];
    let ran = kit.run(spec).await;
    let output = ran.text();
    assert_eq!(ran.end, End::Exited { code: 3 }, "{output}");
    assert!(
        output.starts_with(
            "given\n1\ne\n2\ne\n3\ne\n0\nbin\ndev\netc\nlib\nlib64\nproc\nrun\ntmp\nusr\nwork\n"
        ),
        "{output}"
    );
    assert!(
        output.contains("/etc/secret: Permission denied") && output.contains("Read-only file system"),
        "{output}"
    );
    assert_eq!(ran.running.collect().await.unwrap().files[0].read_piece(0, 64).await.unwrap(), "made\n");
    kit.remove(ran).await;
}

#[tokio::test]
async fn container_holds_all_attempts_of_the_self_test() {
    let kit = kit().await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
}

/// A node is not told where to make groups: they are below its own, which differ by controller.
#[tokio::test]
async fn container_of_a_node_is_limited_in_groups_below_those_of_the_node() {
    let own_groups = |data: &TempDir| HostSettings { cgroup: None, ..image_settings(data) };
    let kit = Kit::open(EngineKind::Oci, own_groups).await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
    let spec = script("echo up; sleep 600");
    let id = spec.id.clone();
    let (running, mut chunks) = kit.start(spec).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    let of_job = || groups_below(Path::new("/sys/fs/cgroup"), 6, &format!("-{id}"));
    let limited = of_job().into_iter().filter_map(|it| fs::read_to_string(it.join("pids.max")).ok());
    assert!(limited.into_iter().any(|it| it.trim() == "32"), "{:?}", of_job());
    let processes = |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for group in of_job().iter().filter(|it| !processes(it).is_empty()) {
        let limit = fs::read_to_string(group.join("pids.max"));
        assert!(limit.is_err() || limit.unwrap().trim() == "32", "{}", group.display());
    }
    running.remove().await;
    assert_eq!(of_job(), Vec::<PathBuf>::new());
}

/// Returns the control groups whose names end so.
fn groups_below(folder: &Path, depth: usize, end: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.flatten().map(|it| it.path()).filter(|it| it.is_dir() && !it.is_symlink());
    let found = folders.flat_map(|path| {
        let below = if depth > 0 { groups_below(&path, depth - 1, end) } else { Vec::new() };
        let is_it = path.to_string_lossy().ends_with(end);
        below.into_iter().chain(is_it.then_some(path))
    });
    found.collect()
}

#[tokio::test]
async fn container_ends_by_its_limits() {
    let kit = kit().await;
    let mut spec = script("trap '' TERM; (setsid sleep 600 &); sleep 600; sleep 600");
    spec.limits.time = Duration::from_millis(300);
    let ran = kit.run(spec).await;
    assert_eq!(ran.end, End::Timeout, "{}", ran.text());
    kit.remove(ran).await;
    for (text, end) in [
        ("head -c 100M /dev/zero >/work/x", End::Disk),
        ("sh -c 'kill -SEGV $$'; exit 139", End::Exited { code: 139 }),
        ("unshare -U id; exit 4", End::Exited { code: 4 }),
    ] {
        let ran = kit.run(script(text)).await;
        assert_eq!(ran.end, end, "{text}: {}", ran.text());
        kit.remove(ran).await;
    }
}

#[tokio::test]
async fn inputs_count_towards_the_memory_of_a_container() {
    let kit = kit().await;
    let inputs = vec![InputFile { path: "in".into(), content: vec![1; 40 << 20].into(), executable: false }];
    for (inputs, mib, end) in [
        (Vec::new(), 40, End::Exited { code: 0 }),
        (inputs.clone(), 8, End::Exited { code: 0 }),
        (inputs, 40, End::Oom),
    ] {
        let given: u64 = inputs.iter().map(|it: &InputFile| it.content.len() as u64).sum();
        let mut spec = script(&format!("head -c {mib}M /dev/zero | tail -c {mib}M >/dev/null"));
        (spec.limits.memory, spec.limits.disk, spec.inputs) = (64 << 20, 48 << 20, inputs);
        let ran = kit.run(spec).await;
        assert_eq!(ran.end, end, "{given} and {mib} MiB: {}", ran.text());
        assert!((given..=64 << 20).contains(&ran.usage.memory_peak), "{:?}", ran.usage);
        kit.remove(ran).await;
    }
}

#[tokio::test]
async fn container_that_is_cancelled_or_dropped_is_removed() {
    let kit = kit().await;
    let (mut running, mut chunks) = kit.start(script("echo up; sleep 600")).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    running.stop(Stop::Cancelled);
    assert_eq!(running.wait().await, End::Cancelled);
    running.remove().await;
    let spec = script("echo up; sleep 600");
    let id = spec.id.clone();
    let (running, mut chunks) = kit.start(spec).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    drop(running);
    kit.host().settled().await;
    assert_nothing_left(&id);
}

#[tokio::test]
async fn image_that_is_not_on_the_node_is_refused() {
    let kit = kit().await;
    let (sink, _output) = mpsc::channel(1);
    let unknown = Spec { image: Some("sha256:1".into()), ..sh("true") };
    assert!(matches!(kit.engine.start(unknown, sink.clone()).await, Err(StartError::NoImage(_))));
    assert!(matches!(kit.engine.start(sh("true"), sink).await, Err(StartError::NoImage(_))));
}

#[tokio::test]
async fn program_that_the_image_lacks_is_a_failed_start() {
    let kit = kit().await;
    let (sink, _output) = mpsc::channel(1);
    let spec = Spec { command: vec!["no-such-program".into()], ..script("") };
    let id = spec.id.clone();
    let error = kit.engine.start(spec, sink).await.unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
    assert_nothing_left(&id);
}

#[tokio::test]
async fn bwrap_runs_jobs_on_an_image_too() {
    let kit = Kit::open(EngineKind::Bwrap, image_settings).await;
    let ran = kit.run(script("ls /; cat /etc/secret; echo x >/usr/x; exit 3")).await;
    let output = ran.text();
    assert!(output.starts_with("bin\ndev\netc\nlib\nlib64\nproc\nrun\ntmp\nusr\nwork\n"), "{output}");
    assert!(
        output.contains("/etc/secret: Permission denied") && output.contains("Read-only file system"),
        "{output}"
    );
    kit.remove(ran).await;
}

#[tokio::test]
async fn engine_without_an_image_is_not_offered() {
    let data = tempfile::tempdir().unwrap();
    let host = Host::open(settings(&data)).unwrap();
    let error = sandbox::open(&host, EngineKind::Oci).await.unwrap_err().to_string();
    assert!(error.contains("there are no images; name the folder"), "{error}");
}
