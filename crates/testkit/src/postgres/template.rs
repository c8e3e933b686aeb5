//! A template of PostgreSQL's data folder. Copying it is much faster than `initdb`.

#![expect(clippy::disallowed_types, reason = "tests start the processes that they test")]

use std::{
    env,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{NAME, PASSWORD, User};
use crate::process::run_command;

/// The version of the template. Increment it when `make` changes.
const EDITION: u32 = 1;

/// Creates the data folder of a new server. The first test creates the template, which takes a second; all
/// others copy it.
pub(super) fn copy(programs: &Path, user: User, target: &Path) {
    let template = template_path(programs);
    if !template.is_dir() {
        make(programs, user, &template);
    }
    copy_folder(&template, target, user);
}

/// Returns the path of the template, next to the built programs, so that it is deleted together with them.
fn template_path(programs: &Path) -> PathBuf {
    let mut command = Command::new(programs.join("initdb"));
    command.arg("--version");
    // Such as `initdb (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
    let output = run_command(command).stdout;
    let version = output.split_whitespace().nth(2).unwrap_or_else(|| panic!("initdb printed {output:?}"));
    let test = env::current_exe().expect("the test knows its own path");
    let folder = test.ancestors().nth(2).expect("tests are built into <profile>/deps");
    folder.join(format!("testkit-postgres-{version}-{EDITION}"))
}

fn make(programs: &Path, user: User, template: &Path) {
    let folder = tempfile::tempdir().expect("a folder for the first server");
    user.take_ownership(folder.path());
    let (data, password) = (folder.path().join("data"), folder.path().join("password"));
    fs::write(&password, PASSWORD).expect("a file for the password");
    user.take_ownership(&password);
    let mut command = user.command(&programs.join("initdb"), folder.path());
    command.arg("--pgdata").arg(&data).arg("--pwfile").arg(&password).args(["--username", NAME]);
    command.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"]);
    let finished = run_command(command);
    assert_eq!(finished.code, 0, "initdb: {}{}", finished.stdout, finished.stderr);

    // Other tests may create it at the same time. Each creates its own, and the first to finish renames it
    // into place.
    let aside = tempfile::tempdir_in(template.parent().expect("a folder")).expect("a folder beside");
    let copied = aside.path().join("data");
    copy_folder(&data, &copied, User::current());
    if let Err(error) = fs::rename(&copied, template) {
        assert!(template.is_dir(), "{}: {error}", template.display());
    }
}

fn copy_folder(from: &Path, to: &Path, user: User) {
    DirBuilder::new().mode(0o700).create(to).expect("a new folder");
    user.take_ownership(to);
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &target, user);
        } else {
            fs::copy(entry.path(), &target).expect("a file can be copied");
            user.take_ownership(&target);
        }
    }
}
