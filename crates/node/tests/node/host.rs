//! What nodes leave on the machine: nothing.

use std::{fs, path::Path};

/// Returns whether a process of one attempt of a job exists.
pub(crate) fn is_running(job: &str, attempt: u32) -> bool {
    let name = format!("{job}-{attempt}");
    let processes = procfs::process::all_processes().unwrap().flatten();
    let mut groups = processes.filter_map(|process| process.cgroups().ok());
    groups.any(|groups| groups.into_iter().any(|group| group.pathname.contains(&name)))
}

/// Waits until nothing of these jobs is left: no process, no mount, no cgroup, no workspace.
pub(crate) async fn wait_until_clean(data: &Path, jobs: &[String]) {
    let mut left = Vec::new();
    for _ in 0..200 {
        left = leftovers(data, jobs);
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("left behind: {left:#?}");
}

fn leftovers(data: &Path, jobs: &[String]) -> Vec<String> {
    let is_of_a_job = |text: &str| jobs.iter().any(|job| text.contains(job.as_str()));
    let mut left = Vec::new();
    for process in procfs::process::all_processes().unwrap().flatten() {
        let Ok(groups) = process.cgroups() else { continue };
        if groups.into_iter().any(|group| is_of_a_job(&group.pathname)) {
            left.push(format!("process {} {:?}", process.pid, process.cmdline()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| is_of_a_job(line)).map(|line| format!("mount {line}")));
    visit(Path::new("/sys/fs/cgroup"), 6, &mut |path| {
        if is_of_a_job(&path.display().to_string()) {
            left.push(format!("cgroup {}", path.display()));
        }
    });
    visit(data, 3, &mut |path| {
        if is_of_a_job(&path.display().to_string()) {
            left.push(format!("folder {}", path.display()));
        }
    });
    left
}

fn visit(folder: &Path, depth: usize, found: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found(&entry.path());
        if depth > 0 {
            visit(&entry.path(), depth - 1, found);
        }
    }
}
