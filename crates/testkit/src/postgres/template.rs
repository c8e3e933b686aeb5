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

/// To be counted up when `make` does it otherwise.
const EDITION: u32 = 1;

/// Makes the data folder of a new server. The first test makes the pattern, which takes a second; all others copy it.
pub(super) fn copy(programs: &Path, user: User, target: &Path) {
    let pattern = pattern(programs);
    if !pattern.is_dir() {
        make(programs, user, &pattern);
    }
    copy_folder(&pattern, target, user);
}

/// Beside the programs under test, so that it goes when they do.
fn pattern(programs: &Path) -> PathBuf {
    let mut command = Command::new(programs.join("initdb"));
    command.arg("--version");
    // Such as `initdb (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
    let said = run_command(command).stdout;
    let version = said.split_whitespace().nth(2).unwrap_or_else(|| panic!("initdb said {said:?}"));
    let test = env::current_exe().expect("the test knows its own path");
    let folder = test.ancestors().nth(2).expect("tests are built into <profile>/deps");
    folder.join(format!("testkit-postgres-{version}-{EDITION}"))
}

fn make(programs: &Path, user: User, pattern: &Path) {
    let folder = tempfile::tempdir().expect("a folder for the first server");
    user.give(folder.path());
    let (data, password) = (folder.path().join("data"), folder.path().join("password"));
    fs::write(&password, PASSWORD).expect("a file for the password");
    user.give(&password);
    let mut command = user.command(&programs.join("initdb"), folder.path());
    command.arg("--pgdata").arg(&data).arg("--pwfile").arg(&password).args(["--username", NAME]);
    command.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"]);
    let finished = run_command(command);
    assert_eq!(finished.code, 0, "initdb: {}{}", finished.stdout, finished.stderr);

    // Others may be making it too: each makes its own, and the first to finish has made it.
    let aside = tempfile::tempdir_in(pattern.parent().expect("a folder")).expect("a folder beside");
    let copied = aside.path().join("data");
    copy_folder(&data, &copied, User::ourselves());
    if let Err(error) = fs::rename(&copied, pattern) {
        assert!(pattern.is_dir(), "{}: {error}", pattern.display());
    }
}

fn copy_folder(from: &Path, to: &Path, user: User) {
    DirBuilder::new().mode(0o700).create(to).expect("a new folder");
    user.give(to);
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &target, user);
        } else {
            fs::copy(entry.path(), &target).expect("a file can be copied");
            user.give(&target);
        }
    }
}
