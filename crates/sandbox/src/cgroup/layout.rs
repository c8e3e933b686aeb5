//! Where on this machine the control groups of jobs are made.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Group, Version, write};

/// The leaf into which the node moves itself in version 2, where a group has either processes or children.
const NODE_LEAF: &str = "cynode-node";

/// The folders below which the groups of jobs are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    version: Version,
    memory: PathBuf,
    pids: PathBuf,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    /// The same in all hierarchies that are mounted.
    all: Vec<PathBuf>,
}

/// Why memory and processes of a job cannot be limited.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot limit jobs by control groups: {0}")]
pub(crate) struct NoCgroup(String);

impl Layout {
    /// Finds the groups of this process, or those below `parent`, and tries that they can be used.
    pub(crate) fn discover(parent: Option<&Path>) -> Result<Self, NoCgroup> {
        let mounts = read("/proc/self/mountinfo")?;
        let own = read("/proc/self/cgroup")?;
        let layout = Self::find(&mounts, &own, parent)?;
        layout.prepare(parent.is_some())?;
        layout.try_out()?;
        Ok(layout)
    }

    fn find(mounts: &str, own: &str, parent: Option<&Path>) -> Result<Self, NoCgroup> {
        let hierarchies = Hierarchies::read(mounts, own);
        let all: Vec<_> = hierarchies.found.keys().filter_map(|it| hierarchies.folder(it, parent)).collect();
        let place = |controller: &str| hierarchies.folder(controller, parent);
        if let (Some(memory), Some(pids)) = (place("memory"), place("pids")) {
            let (cpu, cpuacct) = (place("cpu"), place("cpuacct"));
            return Ok(Self { version: Version::V1, memory, pids, cpu, cpuacct, all });
        }
        match hierarchies.folder("", parent) {
            Some(folder) => Ok(Self {
                version: Version::V2,
                memory: folder.clone(),
                pids: folder.clone(),
                cpu: Some(folder),
                cpuacct: None,
                all,
            }),
            None => Err(NoCgroup("no cgroup file system is mounted; mount one at /sys/fs/cgroup".into())),
        }
    }

    /// Makes the parent, and in version 2 enables its controllers for children.
    fn prepare(&self, named: bool) -> Result<(), NoCgroup> {
        let cannot = |folder: &Path, error: io::Error| {
            NoCgroup(format!(
                "{} is not writable: {error}; run the node as root, or delegate a group to its user \
                 (systemd: Delegate=yes)",
                folder.display()
            ))
        };
        if named {
            for folder in [Some(&self.memory), Some(&self.pids), self.cpu.as_ref(), self.cpuacct.as_ref()] {
                let Some(folder) = folder else { continue };
                fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
            }
        }
        if self.version == Version::V1 {
            return Ok(());
        }
        let parent = &self.pids;
        // A group that has been named gets its controllers from the groups above it.
        let above: Vec<_> =
            parent.ancestors().skip(1).filter(|it| it.join("cgroup.controllers").exists()).collect();
        for folder in above.into_iter().rev().filter(|_| named) {
            enable(folder).unwrap_or_default();
        }
        if enable(parent).is_err() {
            let leaf = parent.join(NODE_LEAF);
            fs::create_dir_all(&leaf).map_err(|error| cannot(&leaf, error))?;
            let text = fs::read_to_string(parent.join("cgroup.procs")).unwrap_or_default();
            for pid in text.lines() {
                write(&leaf, "cgroup.procs", &pid).map_err(|error| cannot(&leaf, error))?;
            }
            enable(parent).map_err(|error| cannot(parent, error))?;
        }
        Ok(())
    }

    /// Makes a group and removes it.
    fn try_out(&self) -> Result<(), NoCgroup> {
        let group = self.group(&format!("cynode-try-{}", std::process::id()));
        let made = group.create(&crate::spec::Limits::default(), 0);
        group.remove().map_err(|error| NoCgroup(error.to_string()))?;
        made.map_err(|error| {
            NoCgroup(format!(
                "{error}; run the node as root, or delegate a group to its user (systemd: Delegate=yes)"
            ))
        })
    }

    /// Names the group of a job without making it.
    pub(crate) fn group(&self, name: &str) -> Group {
        let inner = |folder: &Option<PathBuf>| folder.as_ref().map(|it| it.join(name));
        Group {
            version: self.version,
            memory: self.memory.join(name),
            pids: self.pids.join(name),
            cpu: inner(&self.cpu),
            cpuacct: inner(&self.cpuacct),
            others: Vec::new(),
        }
    }

    /// Names the group of a job of an engine that makes groups in all hierarchies.
    pub(crate) fn group_of_all(&self, name: &str) -> Group {
        let others = self.all.iter().map(|it| it.join(name)).collect();
        Group { others, ..self.group(name) }
    }

    /// Names a group that only keeps processes together. They may make one of the name `inner` in it.
    pub(crate) fn unlimited(&self, name: &str, inner: &str) -> Group {
        let folder = self.pids.join(name);
        let others = vec![folder.join(inner)];
        Group {
            version: self.version,
            memory: folder.clone(),
            pids: folder,
            cpu: None,
            cpuacct: None,
            others,
        }
    }

    /// Returns the folder in which all groups of jobs are that have processes.
    pub(crate) fn parent(&self) -> &Path {
        &self.pids
    }

    /// Says which limits are missing besides memory and processes, which always hold.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.cpu.is_none().then_some("processor time is not limited: no cpu controller")
    }
}

fn enable(folder: &Path) -> io::Result<()> {
    write(folder, "cgroup.subtree_control", &"+memory +pids +cpu")
}

fn read(path: &str) -> Result<String, NoCgroup> {
    fs::read_to_string(path).map_err(|error| NoCgroup(format!("reading {path}: {error}; mount /proc")))
}

/// The mounted hierarchies: mount point, the part of the hierarchy it shows, and the group of this process.
struct Hierarchies {
    /// By controller; version 2 has the empty name.
    found: BTreeMap<String, (PathBuf, PathBuf, PathBuf)>,
}

impl Hierarchies {
    fn read(mounts: &str, own: &str) -> Self {
        let mut groups = BTreeMap::new();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            if let (Some(controllers), Some(path)) = (parts.next(), parts.next()) {
                groups.extend(controllers.split(',').map(|it| (it.to_owned(), PathBuf::from(path))));
            }
        }
        let mut found = BTreeMap::new();
        for line in mounts.lines() {
            let Some((mount, kind)) = line.split_once(" - ") else { continue };
            let (mount, kind): (Vec<_>, Vec<_>) = (mount.split(' ').collect(), kind.split(' ').collect());
            let (Some(root), Some(point), Some(name)) = (mount.get(3), mount.get(4), kind.first()) else {
                continue;
            };
            let names: Vec<&str> = match *name {
                "cgroup2" => vec![""],
                "cgroup" => kind.get(2).map(|it| it.split(',').collect()).unwrap_or_default(),
                _ => continue,
            };
            for name in names {
                if let Some(group) = groups.get(name) {
                    found.insert(name.to_owned(), (PathBuf::from(point), PathBuf::from(root), group.clone()));
                }
            }
        }
        Self { found }
    }

    /// Returns the folder of the parent group in the hierarchy of a controller.
    fn folder(&self, controller: &str, parent: Option<&Path>) -> Option<PathBuf> {
        let (point, root, own) = self.found.get(controller)?;
        let below = match parent {
            Some(parent) => parent.strip_prefix("/").unwrap_or(parent),
            // A process outside of what the mount shows is in a container with a namespace of its own.
            None => own.strip_prefix(root).unwrap_or(Path::new("")),
        };
        Some(point.join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      31 23 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const OWN: &str = "3:cpu,cpuacct:/a\n2:memory:/docker/x/b\n1:pids:/\n0::/c\n";

    #[test]
    fn version_1_is_found_per_controller_and_relative_to_what_the_mount_shows() {
        let layout = Layout::find(V1, OWN, None).unwrap();
        assert_eq!(layout.version, Version::V1);
        assert_eq!(layout.memory, Path::new("/sys/fs/cgroup/memory/b"));
        assert_eq!(layout.pids, Path::new("/sys/fs/cgroup/pids"));
        assert_eq!(layout.cpu, layout.cpuacct);
        assert_eq!(layout.cpu.as_deref(), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/a")));
        let named = Layout::find(V1, OWN, Some(Path::new("/jobs"))).unwrap();
        assert_eq!(named.memory, Path::new("/sys/fs/cgroup/memory/jobs"));
    }

    #[test]
    fn version_2_is_taken_where_controllers_are_not_mounted_one_by_one() {
        let mounts = "33 23 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let layout = Layout::find(mounts, "0::/user.slice/node.service\n", None).unwrap();
        assert_eq!(layout.version, Version::V2);
        assert_eq!(layout.pids, Path::new("/sys/fs/cgroup/user.slice/node.service"));
        assert!(Layout::find("", "", None).unwrap_err().to_string().contains("mount one"));
    }
}
