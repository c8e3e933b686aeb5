//! Settings of the egress that are refused before anything is opened.

use std::{fs, os::unix::fs::PermissionsExt};

use testkit::{binary, run};

use super::{provider_key, write_private};

/// P15, G11: a key belongs into a file that only its owner reads.
#[test]
fn keys_outside_of_private_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = (folder.path().join("private"), folder.path().join("public"));
    write_private(&private, &provider_key());
    write_private(&public, &provider_key());
    fs::set_permissions(&public, fs::Permissions::from_mode(0o644)).unwrap();
    let (private, public) = (private.display().to_string(), public.display().to_string());
    let check = |entry: &str, code: i32, words: &[&str]| {
        let setting = format!("egress.providers=[{entry}]");
        let arguments = ["config", "--set", &setting];
        let finished = run(&binary("cynode-orchestrator"), folder.path(), &arguments, &[]);
        assert_eq!(finished.code, code, "{entry}: {finished:?}");
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        assert!(!said.contains(&provider_key()), "{said}");
    };
    let url = "url=\"https://api.openai.com/v1\"";
    check(&format!("{{name=\"openai\", {url}, key_file=\"{private}\"}}"), 0, &["openai"]);
    check(&format!("{{name=\"openai\", {url}, key_file=\"{public}\"}}"), 64, &["chmod 600"]);
    check(&format!("{{name=\"openai\", {url}, key_file=\"{}\"}}", provider_key()), 64, &["path of a file"]);
    check(&format!("{{name=\"openai\", {url}, api_key=\"{}\"}}", provider_key()), 64, &["key_file"]);
    check(&format!("{{name=\"openai\", {url}, key_file=\"absent\"}}"), 64, &["absent"]);
    for (entry, word) in [
        ("name=\"local\", url=\"http://x/v1\"", "name of a provider"),
        ("name=\"a/b\", url=\"http://x/v1\"", "name of a provider"),
        ("name=\"a\", url=\"ftp://x/v1\"", "HTTP address"),
        ("name=\"a\", url=\"http://me:secret@x/v1\"", "HTTP address"),
        ("name=\"a\", url=\"http://x/v1\", auth=\"basic\"", "bearer, x-api-key"),
        ("name=\"a\", url=\"http://x/v1\", budget={usd_per_day=1.0}", "needs `price`"),
        ("name=\"a\", url=\"http://x/v1\", max_completion_tokens=0", "must be 1 to"),
        ("name=\"a\", url=\"http://x/v1\", limit_field=\"limit\"", "max_completion_tokens, max_tokens"),
        ("name=\"a\", url=\"http://x/v1\", price={prompt=-1.0, completion=1.0}", "US dollars"),
        ("name=\"a\", url=\"http://x/v1\"}, {name=\"a\", url=\"http://y/v1\"", "named twice"),
    ] {
        check(&format!("{{{entry}}}"), 64, &["egress.providers", word]);
    }
}
