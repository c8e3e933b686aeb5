//! Which engines a node offers, and what it says of those that it does not.

use std::{fs, os::unix::fs::PermissionsExt};

use testkit::{Finished, binary, run};

/// Runs `cynode-node check --engines` with settings.
fn check(settings: &[String]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let data = format!("node.data={}", folder.path().join("node").display());
    let settings = settings.iter().chain([&data]).flat_map(|it| ["--set".to_owned(), it.clone()]);
    let arguments: Vec<String> =
        ["check", "--engines"].map(str::to_owned).into_iter().chain(settings).collect();
    run(&binary("cynode-node"), folder.path(), &arguments, &[])
}

/// An image may hold one static program and nothing else: what isolates its jobs is not in it.
#[test]
fn engine_is_offered_for_an_image_without_any_programs() {
    let image = tempfile::tempdir().unwrap();
    fs::set_permissions(image.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(image.path().join("data")).unwrap();
    let images = format!(
        "sandbox.images=[{{digest=\"sha256:{}\", rootfs=\"{}\"}}]",
        "0".repeat(64),
        image.path().display()
    );
    let done = check(&["sandbox.engines=[\"oci\"]".to_owned(), images]);
    assert!(done.code == 0 && done.stdout.contains("oci: 14 attempts to escape, all held"), "{done:?}");
}

#[test]
fn attempt_whose_program_is_missing_is_reported_as_such_and_not_as_an_escape() {
    let libraries = ["/bin", "/lib", "/lib64", "/usr/lib", "/usr/lib64"];
    let shown: Vec<_> =
        libraries.into_iter().chain(["/usr/bin/true", "/usr/bin/sh", "/usr/bin/dash"]).collect();
    let done = check(&[format!("sandbox.read_only={shown:?}")]);
    assert_ne!(done.code, 0, "{done:?}");
    let says = |text: &str| done.stdout.contains(text);
    let why = "its self-test could not be tried: mounts are denied: the program `mount` is missing";
    assert!(says(&format!("bwrap not offered: {why}")), "{done:?}");
    assert!(says("sandbox.read_only") && !says("escaped") && !says("self-test failed"), "{done:?}");
}
