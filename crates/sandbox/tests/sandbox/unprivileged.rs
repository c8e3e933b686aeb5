//! A node that is not root: jobs in user namespaces, limited by control groups that were delegated to it.

use std::{fs, os::unix::fs::chown, path::PathBuf};

use sandbox::{EngineKind, Host, HostSettings};

use crate::kit::sh;

/// Names the folder of the node that this process is to be, if it is one.
const NODE: &str = "CYNODE_TEST_UNPRIVILEGED";
const UID: u32 = 1_800_000_001;

/// The node: a copy of this program that runs this test alone, as a user without rights.
#[tokio::test]
async fn node_without_rights_runs_jobs_if_this_process_is_one() {
    let Some(folder) = std::env::var_os(NODE).map(PathBuf::from) else { return };
    let mut settings = HostSettings::new(folder.join("node"));
    let host = Host::open(settings.clone()).unwrap();
    let refused = sandbox::open(&host, EngineKind::Bwrap).await.unwrap_err().to_string();
    assert!(refused.contains("control groups") && refused.contains("Delegate=yes"), "{refused}");
    drop(host);
    settings.cgroup = Some(std::env::var_os("CYNODE_TEST_GROUP").unwrap().into());
    let host = Host::open(settings).unwrap();
    let engine = sandbox::open(&host, EngineKind::Bwrap).await.unwrap();
    assert!(engine.notes().iter().any(|it| it.contains("not root")), "{:?}", engine.notes());
    let test = sandbox::self_test(&engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
    let mut spec = sh("cat in; echo made >out; cat /etc/shadow");
    spec.inputs =
        vec![sandbox::InputFile { path: "in".into(), content: "given\n".into(), executable: false }];
    spec.outputs = vec!["out".into()];
    let (sink, mut output) = tokio::sync::mpsc::channel(4);
    let mut running = engine.start(spec, sink).await.unwrap();
    let first = output.recv().await.unwrap();
    assert!(first.starts_with(b"given\n"), "{first:?}");
    while output.recv().await.is_some() {}
    assert_eq!(running.wait().await, sandbox::End::Exited { code: 1 });
    assert_eq!(running.collect().await.unwrap().files[0].read_piece(0, 64).await.unwrap(), "made\n");
    running.remove().await;
    println!("node without rights is done");
}

/// Makes the control groups that an administrator would delegate. Returns their folders.
fn delegate(group: &str) -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let v1: Vec<_> = ["memory", "pids", "cpu", "cpuacct"]
        .map(|it| root.join(it))
        .into_iter()
        .filter(|it| it.is_dir())
        .collect();
    let roots = if v1.is_empty() { vec![root] } else { v1 };
    let folders: Vec<_> = roots.into_iter().map(|it| it.join(&group[1..])).collect();
    for folder in &folders {
        fs::create_dir_all(folder).unwrap();
        for path in [folder.clone(), folder.join("cgroup.procs"), folder.join("cgroup.subtree_control")] {
            if path.exists() {
                chown(path, Some(UID), Some(UID)).unwrap();
            }
        }
    }
    folders
}

#[expect(clippy::disallowed_types, reason = "the test runs as another user")]
#[tokio::test]
async fn node_without_rights_runs_jobs_in_groups_that_it_was_given() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes control groups for another user: run it as root"
    );
    let data = tempfile::tempdir().unwrap();
    chown(data.path(), Some(UID), Some(UID)).unwrap();
    let program = data.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let group = format!("/cynode-tests-{}", std::process::id());
    let folders = delegate(&group);
    // In version 2 a process can be moved between groups of the same delegated part only.
    let leaf = folders[0].join("leaf");
    let is_v2 = folders[0].join("cgroup.subtree_control").exists();
    let join = if is_v2 {
        format!("mkdir {0}; chown {UID} {0} {0}/cgroup.procs; echo $$ >{0}/cgroup.procs;", leaf.display())
    } else {
        String::new()
    };
    let test = "unprivileged::node_without_rights_runs_jobs_if_this_process_is_one";
    let script = format!(
        "{join} exec setpriv --reuid {UID} --regid {UID} --clear-groups {} --exact {test} --nocapture",
        program.display()
    );
    let ran = std::process::Command::new("sh")
        .args(["-c", &script])
        .env(NODE, data.path())
        .env("CYNODE_TEST_GROUP", &group)
        .output()
        .unwrap();
    for folder in [leaf].iter().chain(&folders).filter(|it| it.exists()) {
        fs::remove_dir(folder).unwrap();
    }
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(text.contains("node without rights is done"), "{text}");
}
