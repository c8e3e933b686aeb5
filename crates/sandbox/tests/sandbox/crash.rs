//! A node that is killed at any point leaves nothing that runs, and its next start removes the rest.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use sandbox::{EngineKind, Host, HostSettings};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::kit::{groups, settings, sh};

/// Names the folder of the node that this process is to be, if it is one.
const NODE: &str = "CYNODE_TEST_NODE";

/// Names the job that the node is to run.
const JOB: &str = "CYNODE_TEST_JOB";

/// Names its engine.
const ENGINE: &str = "CYNODE_TEST_ENGINE";

fn job() -> String {
    format!("crashed-{}", std::process::id())
}

fn node_settings(data: &TempDir) -> HostSettings {
    let mut settings = settings(data);
    settings.locks = data.path().join("locks");
    settings
}

/// The node that is killed: a copy of this program that runs this test alone.
#[tokio::test]
async fn node_runs_a_job_if_this_process_is_one() {
    let Some(folder) = std::env::var_os(NODE) else { return };
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut settings = HostSettings::new(Path::new(&folder).join("node"));
    settings.locks = Path::new(&folder).join("locks");
    settings.cgroup = Some(crate::kit::GROUP.into());
    settings.rootfs.insert(crate::oci::IMAGE.into(), Path::new(&folder).join("image"));
    let host = Host::open(settings).unwrap();
    let kind: EngineKind = std::env::var(ENGINE).unwrap().parse().unwrap();
    let engine = sandbox::open(&host, kind).await.unwrap();
    let (sink, mut output) = mpsc::channel(1);
    let mut spec = sh("trap '' TERM; (setsid sleep 600 &); echo up; sleep 600");
    spec.id = std::env::var(JOB).unwrap();
    spec.image = (kind == EngineKind::Oci).then(|| crate::oci::IMAGE.to_owned());
    let running = engine.start(spec, sink).await.unwrap();
    assert_eq!(output.recv().await.unwrap(), "up\n");
    println!("job runs");
    if std::env::var("CYNODE_STOP_AT").is_ok_and(|it| it.starts_with("\"Emptied")) {
        running.remove().await;
    }
    std::future::pending::<()>().await;
}

#[expect(clippy::disallowed_types, reason = "the test kills a process")]
fn killed_node(data: &TempDir, engine: EngineKind, stop_at: &str) {
    let mut node = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::node_runs_a_job_if_this_process_is_one", "--nocapture", "--test-threads=1"])
        .env(NODE, data.path())
        .env(JOB, job())
        .env(ENGINE, engine.as_str())
        .env("CYNODE_STOP_AT", stop_at)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
    let wanted = if stop_at == "never" { "job runs" } else { "stops=true" };
    assert!(lines.any(|line| line.contains(wanted)), "{stop_at} was not reached");
    node.kill().unwrap();
    node.wait().unwrap();
}

/// Asserts that what the node left comes to rest by itself, and that its next start removes it.
async fn assert_reconciled(data: &TempDir, stop_at: &str) {
    let name = format!("-{}", job());
    let mine = || groups().into_iter().filter(|it| it.to_string_lossy().ends_with(&name)).collect::<Vec<_>>();
    let processes =
        |group: &std::path::PathBuf| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while mine().iter().any(|group| !processes(group).is_empty()) {
        assert!(Instant::now() < deadline, "{stop_at}: processes live on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let settings = node_settings(data);
    let host = Host::open(settings.clone()).unwrap();
    let done = sandbox::reconcile(&host).await.unwrap();
    assert_eq!((done.jobs, done.failed), (1, 0), "{stop_at}");
    assert_eq!(mine(), Vec::<std::path::PathBuf>::new(), "{stop_at}");
    assert_eq!(fs::read_dir(settings.data.join("jobs")).unwrap().count(), 0);
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&*data.path().to_string_lossy()));
    for lock in fs::read_dir(settings.locks.join("uids")).unwrap() {
        let lock = fs::File::open(lock.unwrap().path()).unwrap();
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            assert!(Instant::now() < deadline, "{stop_at}: user still taken");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(sandbox::reconcile(&host).await.unwrap(), sandbox::Reconciled::default());
}

#[tokio::test]
async fn killed_node_leaves_nothing_that_its_next_start_does_not_remove() {
    // The first job is the one with which the engine is tried out.
    let points =
        ["Recorded", "Grouped", "Spawned", "Joined", "Staged", "Started"].map(|it| format!("{it}#2"));
    for stop_at in points.iter().map(String::as_str).chain(["\"Emptied\"#2", "never"]) {
        let stop_at = stop_at.replace("Started#2", "Started#1");
        let data = tempfile::tempdir().unwrap();
        killed_node(&data, EngineKind::Bwrap, &stop_at);
        assert_reconciled(&data, &stop_at).await;
    }
}

#[tokio::test]
async fn killed_node_leaves_no_container_and_no_mount_after_its_next_start() {
    for stop_at in ["Recorded#1", "Staged#1", "Started#1", "never"] {
        let data = tempfile::tempdir().unwrap();
        crate::oci::image_settings(&data);
        killed_node(&data, EngineKind::Oci, stop_at);
        assert_reconciled(&data, stop_at).await;
    }
}

#[tokio::test]
async fn two_nodes_cannot_use_one_folder() {
    let data = tempfile::tempdir().unwrap();
    let first = Host::open(settings(&data)).unwrap();
    let error = Host::open(settings(&data)).unwrap_err().to_string();
    assert!(error.contains("in use by another node"), "{error}");
    drop(first);
    Host::open(settings(&data)).unwrap();
}
