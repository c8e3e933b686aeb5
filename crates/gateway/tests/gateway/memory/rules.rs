//! What an ingest leaves out: what Git ignores, in whatever encoding its rules are.

use std::{fs, os::unix::fs::symlink, path::Path};

use testkit::{Finished, GatewayProcess};

use super::{ingest::write, sources};
use crate::administration::support::ctl;

async fn ingest(gateway: &GatewayProcess, folder: &Path) -> Finished {
    ctl(gateway, &["memory", "ingest", &folder.display().to_string()]).await
}

async fn paths(gateway: &GatewayProcess) -> Vec<String> {
    sources(gateway, "default").await.into_keys().collect()
}

/// An empty repository of Git.
fn init(folder: &Path) {
    write(folder, ".git/HEAD", "ref: refs/heads/main\n");
    for name in ["objects", "refs", "info"] {
        fs::create_dir_all(folder.join(".git").join(name)).unwrap();
    }
}

/// Git reads rules as bytes: one that is not UTF-8 is a rule, and neither it nor those after it are lost.
#[tokio::test]
async fn rules_that_are_not_utf8_are_kept_as_git_keeps_them() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let docs = outer.path().join("docs");
    init(&docs);
    let rules: &[u8] = b"# Caf\xe9\nbefore.md\ncaf\xe9.md\n[\xc3-\xe9]*.txt\n/after.md\nlog[[:digit:]].md\n\
        {a,b}.md\n*.key\n!public.key\ntrailing.md\\ \nspaces.md   \r\nsub/**/deep.md";
    write(&docs, ".gitignore", rules);
    write(&docs, ".git/info/exclude", b"\xff\xfe\nexcluded.md\n");
    write(&docs, "sub/.ignore", b"\xe9\nown.md\n!secret.key\n");
    let left_out = [
        "before.md",
        "after.md",
        "\u{e9}t\u{e9}.txt",
        "log1.md",
        "{a,b}.md",
        "secret.key",
        "spaces.md",
        "excluded.md",
        "sub/own.md",
        "sub/secret.key",
        "sub/x/deep.md",
    ];
    let ingested = [
        "a.md",
        "b.md",
        "caf\u{e9}.md",
        "logs.md",
        "public.key",
        "sub/after.md",
        "sub/seen.md",
        "trailing.md",
    ];
    for path in left_out.iter().chain(&ingested) {
        write(&docs, path, format!("an otter in {path}"));
    }
    let ran = ingest(&gateway, &docs).await;
    assert!(ran.code == 0 && ran.stdout.contains("8 new or changed"), "{ran:?}");
    assert_eq!(paths(&gateway).await, ingested.map(|path| format!("docs/{path}")));
    // The rules of the folder above are read in the same way, whatever is ingested.
    write(&docs, "sub/before.md", "an otter");
    let ran = ctl(&gateway, &["memory", "ingest", &docs.join("sub").display().to_string()]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let of_sub: Vec<String> =
        paths(&gateway).await.into_iter().filter(|path| path.starts_with("sub/")).collect();
    assert_eq!(of_sub, ["sub/after.md", "sub/seen.md"]);
}

/// A folder whose rules cannot be read is left out by name, with what was ingested from it before; the others
/// are brought up to date.
#[tokio::test]
async fn folder_whose_rules_cannot_be_read_is_left_out_alone() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let docs = outer.path().join("docs");
    write(&docs, "a.md", "the first otter");
    write(&docs, "gone.md", "the second otter");
    write(&docs, "sub/kept.md", "the third otter");
    assert_eq!(ingest(&gateway, &docs).await.code, 0);
    fs::remove_file(docs.join("gone.md")).unwrap();
    write(&docs, "new.md", "the fourth otter");
    write(&docs, "sub/password.md", "a secret");
    fs::create_dir(docs.join("sub/.gitignore")).unwrap();
    let ran = ingest(&gateway, &docs).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("1 new or changed, 1 unchanged, 1 removed, 1 skipped"), "{ran:?}");
    let skipped = ran.stdout.lines().find(|line| line.starts_with("skipped sub: ")).unwrap();
    assert!(skipped.contains("docs/sub/.gitignore: not a regular file"), "{skipped}");
    assert_eq!(paths(&gateway).await, ["docs/a.md", "docs/new.md", "docs/sub/kept.md"]);
    fs::remove_dir(docs.join("sub/.gitignore")).unwrap();
    write(&docs, "sub/.gitignore", "password.md\nkept.md\n");
    assert_eq!(ingest(&gateway, &docs).await.code, 0);
    assert_eq!(paths(&gateway).await, ["docs/a.md", "docs/new.md"]);
}

/// Rules hold below a repository's folder, but not in another repository; what only looks like one is none,
/// and a linked file of rules, which Git does not read, brings nothing back.
#[tokio::test]
async fn rules_hold_as_far_as_git_reads_them() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let docs = outer.path().join("docs");
    init(&docs);
    init(&docs.join("other"));
    write(&docs, ".gitignore", "*.key\n");
    write(&docs, ".git/info/exclude", "*.pem\n");
    for folder in ["", "other/", "forged/", "linked/"] {
        write(&docs, &format!("{folder}x.key"), "a secret");
        write(&docs, &format!("{folder}x.pem"), "a secret");
        write(&docs, &format!("{folder}x.md"), "an otter");
    }
    write(&docs, "forged/.git/info/exclude", "!*.pem\n");
    write(outer.path(), "rules", "!*.key\n!*.pem\nx.md\n");
    symlink(outer.path().join("rules"), docs.join("linked/.gitignore")).unwrap();
    let ran = ingest(&gateway, &docs).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let all = ["docs/forged/x.md", "docs/other/x.key", "docs/other/x.md", "docs/other/x.pem", "docs/x.md"];
    assert_eq!(paths(&gateway).await, all);
}
