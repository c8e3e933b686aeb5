//! The self-test of an engine: what it needs of the machine and of an image, and what it says of an attempt
//! that it cannot make.

use std::{fs, os::unix::fs::PermissionsExt};

use sandbox::{Attempt, EngineKind, InputFile, Outcome, Spec};

use crate::{
    kit::{Kit, settings},
    oci::{image_settings_of, script},
};

/// Returns the names of the attempts with an outcome.
fn named(attempts: &[Attempt], outcome: Outcome) -> Vec<&str> {
    attempts.iter().filter(|it| it.outcome == outcome).map(|it| it.name).collect()
}

/// Opens `bwrap` on the libraries of the machine and these of its programs.
async fn bwrap_with_programs(programs: &[&str]) -> Kit {
    let libraries = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/bin"].map(str::to_owned);
    let programs = programs.iter().map(|it| format!("/usr/bin/{it}"));
    let read_only = libraries.into_iter().chain(programs).map(Into::into).collect();
    Kit::bwrap_with(|settings| settings.read_only = read_only).await
}

#[tokio::test]
async fn image_with_nothing_but_a_shell_is_offered() {
    let kit = Kit::open(EngineKind::Oci, |data| image_settings_of(data, &["dash"])).await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
    let ran = kit.run(script("echo up")).await;
    assert_eq!(ran.succeeded(), "up\n");
    kit.remove(ran).await;
}

#[tokio::test]
async fn image_without_a_shell_is_offered() {
    let kit = Kit::open(EngineKind::Oci, |data| image_settings_of(data, &["cat"])).await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
    let mut spec = Spec { command: vec!["cat".into(), "in".into()], ..script("") };
    spec.inputs = vec![InputFile { path: "in".into(), content: "given\n".into(), executable: false }];
    let ran = kit.run(spec).await;
    assert_eq!(ran.succeeded(), "given\n");
    kit.remove(ran).await;
}

#[tokio::test]
async fn attempts_without_a_shell_could_not_be_tried_and_are_no_escape() {
    let kit = bwrap_with_programs(&["true"]).await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(!test.has_held());
    for attempt in &test.attempts {
        assert_eq!(attempt.outcome, Outcome::Untried, "{attempt:?}");
        let says = |text: &str| attempt.detail.contains(text);
        assert!(says("`sh` does not run") && says("execvp sh") && says("sandbox.read_only"), "{attempt:?}");
    }
}

#[tokio::test]
async fn attempts_need_only_a_shell_and_name_the_program_that_is_missing_besides() {
    let kit = bwrap_with_programs(&["true", "sh", "dash"]).await;
    let test = sandbox::self_test(&kit.engine).await;
    assert_eq!(named(&test.attempts, Outcome::Escaped), [""; 0], "{:#?}", test.attempts);
    assert_eq!(named(&test.attempts, Outcome::Untried), ["mounts are denied"], "{:#?}", test.attempts);
    assert!(!test.has_held());
    let untried = test.attempts.iter().find(|it| it.outcome == Outcome::Untried).unwrap();
    assert!(untried.detail.starts_with("the program `mount` is missing; "), "{untried:?}");
}

#[tokio::test]
async fn machine_without_programs_for_jobs_is_told_to_show_them() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = settings(&data);
    settings.read_only = vec!["/usr/share".into()];
    let host = sandbox::Host::open(settings).unwrap();
    let error = sandbox::open(&host, EngineKind::Bwrap).await.unwrap_err().to_string();
    assert!(error.contains("execvp true") && error.contains("sandbox.read_only"), "{error}");
}

/// A bubblewrap that leaves out one of its arguments, as one with a fault would.
#[tokio::test]
async fn root_that_can_be_written_to_is_an_escape() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let program = folder.path().join("bwrap");
    let text = "#!/bin/sh\n[ \"$1\" = --args ] || exec bwrap \"$@\"\n\
                kept=$(mktemp); tr '\\0' '\\n' <&3 | sed '/^--remount-ro$/,+1d' | tr '\\n' '\\0' >$kept\n\
                exec 3<$kept; rm $kept; exec bwrap \"$@\"\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let kit = Kit::bwrap_with(|settings| settings.tools.bwrap = program).await;
    let test = sandbox::self_test(&kit.engine).await;
    let escaped = named(&test.attempts, Outcome::Escaped);
    assert!(escaped.contains(&"devices and root are read-only"), "{:#?}", test.attempts);
    assert_eq!(named(&test.attempts, Outcome::Untried), [""; 0], "{:#?}", test.attempts);
    assert!(!test.has_held());
}
