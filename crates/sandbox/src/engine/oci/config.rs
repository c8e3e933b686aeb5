//! The `config.json` of a bundle, as the runtime specification of OCI describes it.

use std::path::Path;

use serde_json::{Value, json};

use super::super::{environment, image::Shown};
use crate::{seccomp, spec::Spec};

/// The parts of a container.
#[derive(Debug)]
pub(super) struct Bundle<'a> {
    pub(super) spec: &'a Spec,
    /// The user of the job on the host.
    pub(super) user: u32,
    pub(super) root: &'a Path,
    pub(super) work: &'a Path,
    pub(super) run: &'a Path,
    /// The control group: a path in each hierarchy, or a name below the node's own.
    pub(super) groups: &'a Path,
}

impl Bundle<'_> {
    pub(super) fn config(&self, shown: &[Shown]) -> Value {
        let files = self.spec.limits.files;
        let env: Vec<_> =
            environment(self.spec).iter().map(|(name, value)| format!("{name}={value}")).collect();
        let no_capabilities =
            json!({ "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": [] });
        let limit = |kind: &str, value: u32| json!({ "type": kind, "hard": value, "soft": value });
        let rlimits =
            [limit("RLIMIT_NOFILE", files), limit("RLIMIT_CORE", 0), limit("RLIMIT_MEMLOCK", 65_536)];
        let mapping = json!([{ "containerID": 0, "hostID": self.user, "size": 1 }]);
        let namespaces =
            ["pid", "network", "ipc", "uts", "mount", "user", "cgroup"].map(|it| json!({ "type": it }));
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": self.spec.command,
                "env": env,
                "cwd": "/work",
                "capabilities": no_capabilities,
                "rlimits": rlimits,
                "noNewPrivileges": true,
                "oomScoreAdj": 500,
            },
            "root": { "path": self.root, "readonly": true },
            "hostname": "job",
            "mounts": self.mounts(shown),
            "linux": {
                "namespaces": namespaces,
                "uidMappings": mapping,
                "gidMappings": mapping,
                "cgroupsPath": self.groups,
                "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
                "seccomp": seccomp::oci(),
                "maskedPaths": [
                    "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
                    "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
                ],
                "readonlyPaths": [
                    "/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
                ],
            },
        })
    }

    fn mounts(&self, shown: &[Shown]) -> Vec<Value> {
        let disk = self.spec.limits.disk;
        let memory = |at: &str, mode: &str, size: u64, more: &[&str]| {
            let given = ["nosuid", "nodev"].iter().chain(more).map(|&it| it.to_owned());
            let options: Vec<_> = given.chain([format!("mode={mode}"), format!("size={size}")]).collect();
            json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": options })
        };
        let bind = |source: &Path, at: &Path, access: &str| {
            let options = ["rbind", "rprivate", "nosuid", "nodev", access];
            json!({ "destination": at, "type": "bind", "source": source, "options": options })
        };
        let image = shown.iter().filter_map(|it| match it {
            Shown::Folder { source, at } | Shown::File { source, at } => Some(bind(source, at, "ro")),
            Shown::Link { .. } => None,
        });
        let mut all: Vec<_> = image.collect();
        let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
        let proc = ["nosuid", "nodev", "noexec"];
        all.extend([
            json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": proc }),
            memory("/dev", "0755", 65_536, &["noexec", "ro"]),
            json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": pts }),
            memory("/dev/shm", "1777", disk, &["noexec"]),
            memory("/tmp", "1777", disk, &[]),
            bind(self.run, Path::new("/run/cynode"), "ro"),
            bind(self.work, Path::new("/work"), "rw"),
        ]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_has_no_capabilities_its_own_user_and_a_read_only_root() {
        let mut spec = Spec::new("a", ["sh", "-c", "x"]);
        spec.env = vec![("A".into(), "b".into())];
        let [root, work, run, groups] = ["/r", "/w", "/s", "g"].map(Path::new);
        let shown = [Shown::Folder { source: "/i/usr".into(), at: "/usr".into() }];
        let config = Bundle { spec: &spec, user: 4711, root, work, run, groups }.config(&shown);
        assert_eq!(config["process"]["args"], json!(["sh", "-c", "x"]));
        assert_eq!(config["process"]["noNewPrivileges"], true);
        assert_eq!(config["process"]["capabilities"]["bounding"], json!([]));
        assert!(config["process"]["env"].as_array().unwrap().contains(&json!("A=b")));
        assert_eq!(config["root"], json!({ "path": "/r", "readonly": true }));
        assert_eq!(config["linux"]["uidMappings"], json!([{ "containerID": 0, "hostID": 4711, "size": 1 }]));
        assert_eq!(config["linux"]["cgroupsPath"], "g");
        let usr = &config["mounts"][0];
        assert_eq!((&usr["destination"], &usr["options"][4]), (&json!("/usr"), &json!("ro")));
        let denied = config["linux"]["seccomp"]["syscalls"][0]["names"].as_array().unwrap();
        assert!(denied.contains(&json!("ptrace")) && denied.contains(&json!("mount")));
    }
}
