use super::{layout::Layout, *};

/// Makes a group in a folder that stands for a cgroup file system of version 2.
fn group_v2(folder: &Path) -> Group {
    let inner = folder.join("job");
    Group {
        version: Version::V2,
        memory: inner.clone(),
        pids: inner.clone(),
        cpu: Some(inner),
        cpuacct: None,
        others: Vec::new(),
    }
}

#[test]
fn version_2_limits_are_written_to_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let group = group_v2(folder.path());
    group.create(&Limits { cpu: 0.5, memory: 1 << 26, pids: 7, ..Limits::default() }, 2).unwrap();
    let read = |file: &str| fs::read_to_string(folder.path().join("job").join(file)).unwrap();
    assert_eq!(read("memory.max"), "67108864");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("memory.oom.group"), "1");
    assert_eq!(read("pids.max"), "9");
    assert_eq!(read("cpu.max"), "50000 100000");
    group.join(4711).unwrap();
    assert_eq!(group.processes(), BTreeSet::from([4711]));
}

#[test]
fn version_2_usage_and_oom_are_read_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let group = group_v2(folder.path());
    fs::create_dir(folder.path().join("job")).unwrap();
    let put = |file: &str, text: &str| fs::write(folder.path().join("job").join(file), text).unwrap();
    put("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
    put("cpu.stat", "usage_usec 42000\nuser_usec 1\n");
    put("memory.peak", "123\n");
    assert_eq!(group.oom_kills(), 2);
    assert_eq!(group.used(), (42, 123));
}

/// The version 2 hierarchy of this machine, whichever controllers it has.
fn unified() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|it| it.contains(" - cgroup2 "))?;
    Some(PathBuf::from(line.split(' ').nth(4)?))
}

#[test]
fn version_2_kill_ends_all_processes_of_a_group() {
    let Some(root) = unified().filter(|_| rustix::process::geteuid().is_root()) else {
        return assert!(Layout::discover(None).is_ok(), "neither version 2 nor version 1");
    };
    let folder = root.join(format!("cynode-test-kill-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let group = Group {
        version: Version::V2,
        memory: folder.clone(),
        pids: folder.clone(),
        cpu: None,
        cpuacct: None,
        others: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let spawner = crate::process::Spawner::start().unwrap();
    let (status, _) = runtime.block_on(async {
        // Its children are born in the group.
        let script =
            "until grep -q cynode-test-kill /proc/$$/cgroup; do :; done; sleep 600 & sleep 600 & wait";
        let command = crate::process::Launch::new("/bin/sh").args(["-c", script]);
        let mut monitor = spawner.spawn(command).await.unwrap();
        group.join(monitor.id()).unwrap();
        while fs::read_to_string(folder.join("cgroup.procs")).unwrap().lines().count() < 3 {
            tokio::task::yield_now().await;
        }
        group.kill();
        (monitor.wait().await.unwrap(), group.empty().await.unwrap())
    });
    assert_eq!(status, crate::process::Exit::Signal(9));
    group.remove().unwrap();
    assert!(!group.exists());
}
