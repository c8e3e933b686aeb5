//! A digest of the location of a folder, which distinguishes folders of the same name.

use std::{ffi::OsString, fs, path::Path};

use data_encoding::HEXLOWER;
use nix::unistd::gethostname;
use sha2::{Digest, Sha256};

/// Bytes of a digest that tell folders of the same name apart.
const FOLDER_BYTES: usize = 4;

/// Returns what tells this machine from others: its id, its name if it has none, or nothing.
pub(super) fn machine() -> Vec<u8> {
    let id = fs::read("/etc/machine-id").unwrap_or_default().trim_ascii().to_owned();
    match &*id {
        b"" | b"uninitialized" => gethostname().map(OsString::into_encoded_bytes).unwrap_or_default(),
        _ => id,
    }
}

/// Returns what tells folders of the same name apart: it says nothing about where they are. Without a machine
/// it is what earlier releases took.
pub(super) fn digest_place(machine: &[u8], folder: &Path) -> String {
    let mut digest = Sha256::new();
    if !machine.is_empty() {
        digest.update(machine);
        digest.update([0_u8]);
    }
    digest.update(folder.as_os_str().as_encoded_bytes());
    let digest = digest.finalize();
    HEXLOWER.encode(digest.get(..FOLDER_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same path on two machines is two folders; earlier releases did not record the machine.
    #[test]
    fn place_is_of_a_machine_and_a_path() {
        let of = |machine: &str, path: &str| digest_place(machine.as_bytes(), Path::new(path));
        assert_eq!(of("one", "/docs"), of("one", "/docs"));
        assert_ne!(of("one", "/docs"), of("two", "/docs"));
        assert_ne!(of("one", "/docs"), of("one", "/notes"));
        let former = Sha256::digest("/docs");
        assert_eq!(of("", "/docs"), HEXLOWER.encode(&former[..FOLDER_BYTES]));
    }
}
