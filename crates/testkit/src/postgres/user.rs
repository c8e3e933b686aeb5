//! The operating system user that runs PostgreSQL.

#![expect(clippy::disallowed_types, reason = "tests start the processes that they test")]

use std::{
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::{User as Account, geteuid};

/// The user that runs a server: the current one, or an unprivileged one if the current user is root, since
/// PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug)]
pub(super) struct User(Option<(u32, u32)>);

impl User {
    pub(super) fn for_servers() -> Self {
        if !geteuid().is_root() {
            return Self(None);
        }
        let account = ["postgres", "nobody"].iter().find_map(|name| Account::from_name(name).ok()?);
        let account =
            account.expect("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`");
        Self(Some((account.uid.as_raw(), account.gid.as_raw())))
    }

    pub(super) fn current() -> Self {
        Self(None)
    }

    /// Changes the owner of a file or folder to this user.
    pub(super) fn take_ownership(self, path: &Path) {
        if let Self(Some((user, group))) = self {
            chown(path, Some(user), Some(group)).expect("root can give a file away");
        }
    }

    pub(super) fn command(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder);
        if let Self(Some((user, group))) = self {
            command.uid(user).gid(group);
        }
        command
    }
}
