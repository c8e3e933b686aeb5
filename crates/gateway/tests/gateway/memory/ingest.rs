//! `cynodectl memory ingest` and its siblings.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{GatewayProcess, Process, cynodectl, eventually};

use super::sources;
use crate::administration::support::{ctl, parsed};

pub(super) fn write(folder: &Path, path: &str, content: impl AsRef<[u8]>) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// A PDF of one page with one line.
fn pdf(line: &str) -> Vec<u8> {
    pdf_with(line, "<< >>")
}

/// A PDF with another object.
fn pdf_with(line: &str, object: &str) -> Vec<u8> {
    let content = format!("BT /F1 12 Tf 72 720 Td ({line}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R \
         /Resources << /Font << /F1 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        object.to_owned(),
    ];
    let (mut out, mut places) = ("%PDF-1.4\n".to_owned(), Vec::new());
    for (number, object) in objects.iter().enumerate() {
        places.push(out.len());
        out.push_str(&format!("{} 0 obj\n{object}\nendobj\n", number + 1));
    }
    let start = out.len();
    out.push_str("xref\n0 7\n0000000000 65535 f \n");
    places.iter().for_each(|place| out.push_str(&format!("{place:010} 00000 n \n")));
    out.push_str(&format!("trailer\n<< /Size 7 /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"));
    out.into_bytes()
}

/// A folder with what is taken, what is left out silently, and what is skipped by name.
fn folder() -> (TempDir, std::path::PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let docs = outer.path().join("docs");
    write(&docs, "guide.md", "# Guide\n\nDeploy the website on Mondays.\n");
    write(&docs, "src/main.rs", "fn main() { deploy_website(); }\n");
    write(&docs, "paper.pdf", pdf("Quokkas are small marsupials"));
    write(&docs, "page.txt", "first page\u{c}second page");
    write(&docs, ".gitignore", "target/\n*.tmp\n");
    write(&docs, "target/out.txt", "ignored");
    write(&docs, "note.tmp", "ignored");
    write(&docs, ".env", "SECRET=1");
    write(&docs, "latin1.txt", b"caf\xe9");
    write(&docs, "binary.dat", b"\x7fELF\x01\x02");
    write(&docs, "broken.pdf", "%PDF-1.4\nnot really");
    write(&docs, "empty.md", " \n");
    fs::File::create(docs.join("huge.log")).unwrap().set_len(50 << 20).unwrap();
    write(outer.path(), "outside.md", "outside of the folder");
    symlink(outer.path().join("outside.md"), docs.join("link.md")).unwrap();
    symlink(&docs, docs.join("loop")).unwrap();
    (outer, docs)
}

#[tokio::test]
async fn folder_is_ingested_brought_up_to_date_and_searched() {
    let gateway = GatewayProcess::start().await;
    let (_outer, docs) = folder();
    let dir = docs.display().to_string();
    let ran = ctl(&gateway, &["memory", "ingest", &dir, "--profile", "team-a", "--tag", "handbook"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("4 new or changed, 0 unchanged, 0 removed, 7 skipped"), "{}", ran.stdout);
    for (name, why) in [
        ("huge.log", "52428800 bytes"),
        ("latin1.txt", "not UTF-8"),
        ("binary.dat", "control character U+007F"),
        ("broken.pdf", "not a readable PDF"),
        ("empty.md", "no text"),
        ("link.md", "symbolic link"),
        ("loop", "symbolic link"),
    ] {
        let line = ran.stdout.lines().find(|line| line.starts_with(&format!("skipped {name}:")));
        assert!(line.is_some_and(|line| line.contains(why)), "{name}: {}", ran.stdout);
    }
    let found = sources(&gateway, "team-a").await;
    let paths: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(paths, ["docs/guide.md", "docs/page.txt", "docs/paper.pdf", "docs/src/main.rs"]);
    assert!(sources(&gateway, "default").await.is_empty());

    let of_team = |line: &[&'static str]| [line, &["--profile", "team-a"]].concat();
    let hit = ctl(&gateway, &of_team(&["memory", "search", "when to deploy the website"])).await;
    assert!(hit.stdout.starts_with("docs/guide.md:1-3"), "{hit:?}");
    let hit = ctl(&gateway, &of_team(&["--json", "memory", "search", "quokka", "--limit", "1"])).await;
    let hit: Value = parsed(&hit);
    assert_eq!((&hit["path"], &hit["tags"][0]), (&"docs/paper.pdf".into(), &"handbook".into()));
    let shown = ctl(&gateway, &of_team(&["memory", "show", "docs/page.txt"])).await;
    assert_eq!(shown.stdout, "first page second page\n");

    write(&docs, "guide.md", "# Guide\n\nDeploy the website on Fridays.\n");
    fs::remove_file(docs.join("page.txt")).unwrap();
    let again = ["memory", "ingest", &dir, "--profile", "team-a", "--tag", "handbook"];
    let ran = ctl(&gateway, &again).await;
    assert!(ran.stdout.contains("1 new or changed, 2 unchanged, 1 removed, 7 skipped"), "{}", ran.stdout);
    let ran = ctl(&gateway, &again).await;
    assert!(ran.stdout.contains("0 new or changed, 3 unchanged, 0 removed, 7 skipped"), "{}", ran.stdout);
    let hit = ctl(&gateway, &of_team(&["memory", "search", "deploy website"])).await;
    assert!(hit.stdout.contains("Fridays") && !hit.stdout.contains("Mondays"), "{hit:?}");

    let listed = ctl(&gateway, &of_team(&["memory", "ls", "docs/src/"])).await;
    assert!(
        listed.stdout.contains("docs/src/main.rs") && listed.stdout.contains("ingest:docs"),
        "{listed:?}"
    );
    let gone = ctl(&gateway, &of_team(&["memory", "rm", "docs/guide.md", "--yes"])).await;
    assert_eq!((gone.code, gone.stdout.trim()), (0, "1 deleted"));
    let gone = ctl(&gateway, &of_team(&["memory", "rm", "docs/guide.md", "--yes"])).await;
    assert_ne!(gone.code, 0, "{gone:?}");
    let gone = ctl(&gateway, &of_team(&["memory", "rm", "docs/", "--all-below", "--yes"])).await;
    assert_eq!(gone.stdout.trim(), "2 deleted");
    // One row for each request that changes: an ingest, a change and a removal, and three deletions.
    assert_eq!(gateway.audit("tool=admin.memory.change").await.len(), 6);
}

/// Watches the folder `notes`; what it prints is in the file `log` beside it.
fn watch(gateway: &GatewayProcess, outer: &Path) -> Process {
    watch_with(&cynodectl(), gateway, outer)
}

fn watch_with(program: &Path, gateway: &GatewayProcess, outer: &Path) -> Process {
    let mut arguments = vec!["--gateway".to_owned(), gateway.admin_url(), "--admin-token-file".to_owned()];
    arguments.push(gateway.admin_token_file().display().to_string());
    arguments.extend(["memory", "ingest", "--watch"].map(str::to_owned));
    arguments.push(outer.join("notes").display().to_string());
    Process::start(program, &arguments, &[], &outer.join("log"))
}

#[tokio::test]
async fn watched_folder_is_followed() {
    let mut gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    let mut watcher = watch(&gateway, outer.path());
    let has = async |gateway: &GatewayProcess, paths: &[&str]| {
        let found = sources(gateway, "default").await;
        found.keys().map(String::as_str).eq(paths.iter().copied()).then_some(())
    };
    eventually("the first file", async || has(&gateway, &["notes/a.md"]).await).await;
    write(outer.path(), "notes/sub/b.md", "the second otter");
    eventually("a new file", async || has(&gateway, &["notes/a.md", "notes/sub/b.md"]).await).await;
    fs::remove_file(outer.path().join("notes/a.md")).unwrap();
    eventually("a removed file", async || has(&gateway, &["notes/sub/b.md"]).await).await;
    // A file of the same size and time is another one.
    let before = fs::metadata(outer.path().join("notes/sub/b.md")).unwrap();
    write(outer.path(), "notes/sub/b.md", "the 2nd__ otter.");
    let file = fs::File::options().write(true).open(outer.path().join("notes/sub/b.md")).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), before.len());
    let digest = async |gateway: &GatewayProcess| sources(gateway, "default").await["notes/sub/b.md"].clone();
    let first = digest(&gateway).await;
    eventually("the changed text", async || (digest(&gateway).await != first).then_some(())).await;
    // The gateway restarts, and an empty folder is not taken for one whose files are all gone.
    gateway.kill();
    write(outer.path(), "notes/c.md", "the third otter");
    let log = async || fs::read_to_string(outer.path().join("log")).unwrap();
    eventually("the watcher sees the outage", async || log().await.contains("trying again").then_some(()))
        .await;
    gateway.start_again().await;
    eventually("what came during the outage", async || {
        has(&gateway, &["notes/c.md", "notes/sub/b.md"]).await
    })
    .await;
    fs::rename(outer.path().join("notes"), outer.path().join("elsewhere")).unwrap();
    fs::create_dir(outer.path().join("notes")).unwrap();
    eventually("the empty folder", async || log().await.contains("has no files").then_some(())).await;
    fs::remove_dir(outer.path().join("notes")).unwrap();
    fs::rename(outer.path().join("elsewhere"), outer.path().join("notes")).unwrap();
    write(outer.path(), "notes/d.md", "the fourth otter");
    let all = ["notes/c.md", "notes/d.md", "notes/sub/b.md"];
    eventually("the folder is back", async || has(&gateway, &all).await).await;
    watcher.terminate();
    assert!(watcher.wait(std::time::Duration::from_secs(10)).success());
}

/// A watcher may be started before its gateway.
#[tokio::test]
async fn watcher_waits_for_a_gateway_that_is_not_there_yet() {
    let mut gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    gateway.kill();
    let mut watcher = watch(&gateway, outer.path());
    let log = async || fs::read_to_string(outer.path().join("log")).unwrap();
    eventually("the watcher waits", async || log().await.contains("trying again").then_some(())).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(log().await.matches("trying again").count(), 1, "said once");
    gateway.start_again().await;
    eventually("the first file", async || {
        sources(&gateway, "default").await.contains_key("notes/a.md").then_some(())
    })
    .await;
    watcher.signal(nix::sys::signal::Signal::SIGINT);
    assert!(watcher.wait(std::time::Duration::from_secs(10)).success());
}

/// A text for which the profile has no room is sent again by a watcher although its file stays as it is.
#[tokio::test]
async fn watcher_sends_again_what_had_no_room() {
    let gateway = GatewayProcess::start_with(&[("memory.max_bytes", "4000")]).await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "x ".repeat(500));
    let other = json!({ "path": "other.md", "text": "y ".repeat(1_900), "source": "by hand" });
    gateway.must("POST", "/api/v1/memory/default", Some(json!({ "put": [other] }))).await;
    let mut watcher = watch(&gateway, outer.path());
    let log = async || fs::read_to_string(outer.path().join("log")).unwrap();
    eventually("the refusal", async || log().await.contains("memory.max_bytes").then_some(())).await;
    assert_eq!(ctl(&gateway, &["memory", "rm", "other.md", "--yes"]).await.code, 0);
    eventually("the text has room", async || {
        sources(&gateway, "default").await.contains_key("notes/a.md").then_some(())
    })
    .await;
    watcher.terminate();
    assert!(watcher.wait(std::time::Duration::from_secs(10)).success());
}

/// What keeps a file from being read may pass without a change of the file.
#[tokio::test]
async fn watcher_reads_again_what_could_not_be_read() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    // The watcher starts its own program to read a PDF.
    let program = outer.path().join("cynodectl");
    fs::copy(cynodectl(), &program).unwrap();
    let mut watcher = watch_with(&program, &gateway, outer.path());
    let has = async |path: &str| sources(&gateway, "default").await.contains_key(path).then_some(());
    eventually("the first file", async || has("notes/a.md").await).await;
    fs::set_permissions(&program, Permissions::from_mode(0o644)).unwrap();
    write(outer.path(), "notes/b.pdf", pdf("Quokkas are small marsupials"));
    let log = async || fs::read_to_string(outer.path().join("log")).unwrap();
    eventually("the PDF is skipped", async || log().await.contains("skipped b.pdf").then_some(())).await;
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    eventually("the PDF is read", async || has("notes/b.pdf").await).await;
    watcher.terminate();
    assert!(watcher.wait(std::time::Duration::from_secs(10)).success());
}

/// Without the rules of the folder nothing is ingested, and they are read again.
#[tokio::test]
async fn watcher_waits_for_the_rules_of_its_folder() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    let mut watcher = watch(&gateway, outer.path());
    let has = async |path: &str| sources(&gateway, "default").await.contains_key(path).then_some(());
    eventually("the first file", async || has("notes/a.md").await).await;
    fs::create_dir(outer.path().join("notes/.gitignore")).unwrap();
    let log = async || fs::read_to_string(outer.path().join("log")).unwrap();
    eventually("the watcher waits", async || {
        log()
            .await
            .contains("notes/.gitignore: not a regular file; make the file readable; trying again")
            .then_some(())
    })
    .await;
    write(outer.path(), "notes/b.md", "the second otter");
    write(outer.path(), "notes/secret.md", "the third otter");
    fs::remove_dir(outer.path().join("notes/.gitignore")).unwrap();
    write(outer.path(), "notes/.gitignore", "secret.md\n");
    eventually("the second file", async || has("notes/b.md").await).await;
    assert!(has("notes/secret.md").await.is_none());
    assert_eq!(log().await.matches("trying again").count(), 1, "said once");
    watcher.terminate();
    assert!(watcher.wait(std::time::Duration::from_secs(10)).success());
}

/// Whether changes fit does not depend on their order, and nothing of those that do not fit is kept.
#[tokio::test]
async fn room_is_counted_after_all_changes_of_a_request() {
    let gateway = GatewayProcess::start_with(&[("memory.max_bytes", "4000")]).await;
    let put = |path: &str, words: usize| json!({ "path": path, "text": "x ".repeat(words), "source": "s" });
    let send = async |put: &[Value]| {
        gateway.ask("POST", "/api/v1/memory/default", Some(json!({ "put": put }))).await.status
    };
    assert_eq!(send(&[put("a", 1_900)]).await, 200);
    assert_eq!(send(&[put("b", 1_500), put("a", 100)]).await, 200, "the second makes room for the first");
    let before = sources(&gateway, "default").await;
    assert_eq!(send(&[put("a", 50), put("c", 1_000)]).await, 409);
    assert_eq!(sources(&gateway, "default").await, before);
}

/// A text that the gateway refuses is skipped by name, and the others of its request are kept.
#[tokio::test]
async fn refused_text_does_not_block_others() {
    let gateway = GatewayProcess::start_with(&[("memory.max_bytes", "4000")]).await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    write(outer.path(), "notes/large.md", "x ".repeat(3_000));
    write(outer.path(), "notes/z.md", "the last otter");
    let dir = outer.path().join("notes").display().to_string();
    let ran = ctl(&gateway, &["memory", "ingest", &dir]).await;
    assert!(
        ran.code == 1 && ran.stdout.contains("skipped large.md: ") && ran.stdout.contains("memory.max_bytes"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("2 new or changed"), "{ran:?}");
    assert_eq!(sources(&gateway, "default").await.len(), 2);

    // A text that grew too large is not found as it was before; what is gone makes room first.
    write(outer.path(), "notes/a.md", "y ".repeat(3_000));
    fs::remove_file(outer.path().join("notes/large.md")).unwrap();
    fs::remove_file(outer.path().join("notes/z.md")).unwrap();
    write(outer.path(), "notes/fits.md", "x ".repeat(1_995));
    let ran = ctl(&gateway, &["memory", "ingest", &dir]).await;
    assert!(ran.code == 1 && ran.stdout.contains("its former text is removed"), "{ran:?}");
    let found = sources(&gateway, "default").await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["notes/fits.md"]);
}

/// A PDF that overflows the stack of its reader is skipped by name.
#[tokio::test]
async fn hostile_pdf_does_not_end_an_ingest() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let nested = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    write(outer.path(), "notes/a.pdf", pdf_with("deep", &nested));
    write(outer.path(), "notes/z.md", "the last otter");
    let dir = outer.path().join("notes").display().to_string();
    let ran = ctl(&gateway, &["memory", "ingest", &dir]).await;
    assert!(ran.code == 0 && ran.stdout.contains("1 new or changed"), "{ran:?}");
    assert!(ran.stdout.contains("skipped a.pdf: not a readable PDF"), "{ran:?}");
}

/// What would delete memories that the operator did not mean is refused, with what to do.
#[tokio::test]
async fn ingest_does_not_delete_what_is_not_its_own() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "a/docs/one.md", "the first otter");
    write(outer.path(), "b/docs/two.md", "the second otter");
    let dir = |path: &str| outer.path().join(path).display().to_string();
    let ingest = async |path: &str, more: &[&str]| {
        let folder = dir(path);
        ctl(&gateway, &[&["memory", "ingest", &folder], more].concat()).await
    };
    let paths = async || sources(&gateway, "default").await.into_keys().collect::<Vec<_>>();
    assert_eq!(ingest("a/docs", &[]).await.code, 0);
    let other = ingest("b/docs", &[]).await;
    assert!(
        other.code == 1 && other.stderr.contains("--name") && other.stderr.contains("--moved"),
        "{other:?}"
    );
    assert_eq!(paths().await, ["docs/one.md"]);
    assert_eq!(ingest("b/docs", &["--name", "other"]).await.code, 0);
    assert_eq!(paths().await, ["docs/one.md", "other/two.md"]);
    let moved = ingest("b/docs", &["--moved"]).await;
    assert!(moved.stdout.contains("1 new or changed, 0 unchanged, 1 removed"), "{moved:?}");
    assert_eq!(paths().await, ["docs/two.md", "other/two.md"]);

    fs::remove_file(outer.path().join("b/docs/two.md")).unwrap();
    let empty = ingest("b/docs", &[]).await;
    assert!(empty.code == 1 && empty.stderr.contains("--allow-empty"), "{empty:?}");
    assert_eq!(paths().await, ["docs/two.md", "other/two.md"]);
    assert!(ingest("b/docs", &["--allow-empty"]).await.stdout.contains("1 removed"));

    // A link that points elsewhere is another folder.
    write(outer.path(), "v1/one.md", "the first version");
    write(outer.path(), "v2/two.md", "the second version");
    symlink(outer.path().join("v1"), outer.path().join("current")).unwrap();
    assert_eq!(ingest("current", &[]).await.code, 0);
    fs::remove_file(outer.path().join("current")).unwrap();
    symlink(outer.path().join("v2"), outer.path().join("current")).unwrap();
    let other = ingest("current", &[]).await;
    assert!(other.code == 1 && other.stderr.contains("--moved"), "{other:?}");
    assert_eq!(ingest("current", &["--moved"]).await.code, 0);
    assert_eq!(paths().await, ["current/two.md", "other/two.md"]);
    // A folder is not what only begins like it.
    write(outer.path(), "v1/current-not/x.md", "no");
    let gone = ctl(&gateway, &["memory", "rm", "curr", "--all-below", "--yes"]).await;
    assert_eq!(gone.code, 1, "{gone:?}");

    for (path, more, why) in [
        ("current/two.md", &[][..], "is not a folder"),
        ("current", &["--name", "../x"], "--name"),
        ("current", &["--tag", ""], "tags"),
        ("current", &["--profile", ".."], "memory profile"),
        ("current", &["--profile", ""], "memory profile"),
    ] {
        let ran = ingest(path, more).await;
        assert!(ran.code == 64 && ran.stderr.contains(why), "{path} {more:?}: {ran:?}");
    }
    // Rules that cannot be read may leave something out.
    fs::create_dir(outer.path().join("v2/.gitignore")).unwrap();
    write(outer.path(), "v2/password.txt", "a secret");
    let ran = ingest("current", &[]).await;
    assert!(ran.code == 64 && ran.stderr.contains("nothing was ingested"), "{ran:?}");
    assert_eq!(paths().await, ["current/two.md", "other/two.md"]);
    // The same for what Git excludes: here in a work tree, whose repository is elsewhere.
    fs::remove_dir(outer.path().join("v2/.gitignore")).unwrap();
    let repository = outer.path().join("repository/worktrees/v2");
    write(outer.path(), "v2/.git", format!("gitdir: {}\n", repository.display()));
    write(outer.path(), "repository/worktrees/v2/commondir", "../..\n");
    fs::create_dir_all(outer.path().join("repository/info/exclude")).unwrap();
    let ran = ingest("current", &[]).await;
    assert!(ran.code == 64 && ran.stderr.contains("info/exclude"), "{ran:?}");
    fs::remove_dir(outer.path().join("repository/info/exclude")).unwrap();
    write(outer.path(), "repository/info/exclude", "password.txt\n");
    assert_eq!(ingest("current", &[]).await.code, 0);
    assert_eq!(paths().await, ["current/two.md", "other/two.md"]);
    // The same by a relative path.
    write(outer.path(), "v2/.git", "gitdir: ../repository/worktrees/v2\n");
    assert_eq!(ingest("current", &[]).await.code, 0);
    assert_eq!(paths().await, ["current/two.md", "other/two.md"]);
}

/// A token that is revoked in the middle, or at the beginning, is no reason to skip every file.
#[tokio::test]
async fn refusal_of_the_caller_ends_an_ingest() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "notes/a.md", "the first otter");
    let token = outer.path().join("other.token");
    fs::write(&token, "cyn_not_a_token").unwrap();
    let (url, token) = (gateway.admin_url(), token.display().to_string());
    let dir = outer.path().join("notes").display().to_string();
    let line = ["--gateway", &url, "--admin-token-file", &token, "memory", "ingest", &dir];
    let line: Vec<String> = line.map(str::to_owned).into();
    let ran = tokio::task::spawn_blocking(move || {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        testkit::run(&cynodectl(), testkit::workspace(), &line, &[])
    });
    let ran = ran.await.unwrap();
    assert!(ran.code == 64 && !ran.stdout.contains("skipped"), "{ran:?}");
}
