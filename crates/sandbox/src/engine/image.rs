//! Images: the unpacked files that a job sees as its root, read-only.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Folders of an image that the sandbox has its own of.
const OWN_FOLDERS: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "work"];

/// Something that a job sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A link with this target.
    Link {
        target: PathBuf,
        at: PathBuf,
    },
    Folder {
        source: PathBuf,
        at: PathBuf,
    },
    File {
        source: PathBuf,
        at: PathBuf,
    },
}

/// Lists what there is at the top of an image.
pub(super) fn shown(image: &Path) -> io::Result<Vec<Shown>> {
    let mut names: Vec<_> =
        fs::read_dir(image)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    let own = |name: &OsString| OWN_FOLDERS.iter().any(|it| name == it);
    Ok(names
        .iter()
        .filter(|it| !own(it))
        .filter_map(|name| look(&image.join(name), &Path::new("/").join(name)))
        .collect())
}

/// Lists the files and folders of the machine that jobs without an image see.
pub(super) fn of_machine(read_only: &[PathBuf]) -> Vec<Shown> {
    read_only.iter().filter_map(|path| look(path, path)).collect()
}

/// Lists the same without what is below another of them: no place is made behind a link.
pub(super) fn of_machine_apart(read_only: &[PathBuf]) -> Vec<Shown> {
    let mut paths = read_only.to_vec();
    // Those above come first.
    paths.sort();
    paths.dedup_by(|below, above| below.starts_with(above));
    of_machine(&paths)
}

/// Looks at one file or folder. Nothing if it does not exist.
fn look(source: &Path, at: &Path) -> Option<Shown> {
    let (source, at) = (source.to_owned(), at.to_owned());
    match fs::read_link(&source) {
        Ok(target) => Some(Shown::Link { target, at }),
        Err(_) if source.is_dir() => Some(Shown::Folder { source, at }),
        Err(_) if source.exists() => Some(Shown::File { source, at }),
        Err(_) => None,
    }
}

/// Returns the first folder above a path that users of jobs cannot pass through.
pub(super) fn closed_ancestor(path: &Path) -> Option<PathBuf> {
    let is_closed = |folder: &Path| fs::metadata(folder).map_or(true, |it| it.mode() & 0o001 == 0);
    path.ancestors().filter(|it| !it.as_os_str().is_empty()).find(|it| is_closed(it)).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_another_folder_or_link_is_left_out() {
        let data = tempfile::tempdir().unwrap();
        let at = |name: &str| data.path().join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        fs::write(at("real/file"), "kept").unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        let paths = ["link/file", "real-not", "real/deep", "link", "real", "real/file"].map(at);
        let shown = of_machine_apart(&paths);
        let link = Shown::Link { target: at("real"), at: at("link") };
        assert_eq!(shown, [link, Shown::Folder { source: at("real"), at: at("real") }]);
    }
}
