//! Upstreams that are processes.

use std::{collections::BTreeMap, env, fs, time::Duration};

use serde_json::json;
use testkit::eventually;
use upstream::{Error, Fate, Options, State, Transport, Upstream};

use crate::support::{
    call, call_json, call_with, options, process_id, program, stdio, upstream, wait_until_ended,
};

/// Returns the ids of the child processes of a process.
fn children_of(parent: i32) -> Vec<i32> {
    let all = procfs::process::all_processes().unwrap().filter_map(|process| process.ok()?.stat().ok());
    all.filter(|stat| stat.ppid == parent).map(|stat| stat.pid).collect()
}

/// Waits until no child process with this name is alive.
async fn wait_until_none_left(name: &str) {
    let ours = i32::try_from(std::process::id()).unwrap();
    eventually("no process is left", async || {
        let left = children_of(ours).into_iter().filter(|id| {
            let stat = procfs::process::Process::new(*id).and_then(|process| process.stat());
            stat.is_ok_and(|stat| stat.state != 'Z' && stat.comm.starts_with(name))
        });
        (left.count() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_gets_only_inherited_and_configured_variables() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    fs::write(&secret, "very-secret-key\n").unwrap();
    let Transport::Stdio { argv, .. } = program(&["normal"]) else { unreachable!() };
    let upstream = upstream(options(Transport::Stdio {
        argv,
        env: BTreeMap::from([("GIVEN".to_owned(), "yes; $(no)".to_owned())]),
        secret_env: BTreeMap::from([("API_KEY".to_owned(), secret.clone())]),
        folder: Some(folder.path().to_owned()),
    }));
    let seen = call_json(&upstream, "environment").await;
    assert_eq!((&seen["GIVEN"], &seen["API_KEY"]), (&json!("yes; $(no)"), &json!("very-secret-key")));
    let known = ["GIVEN", "API_KEY", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
    assert!(env::vars().any(|(name, _)| !known.contains(&name.as_str())), "we have more than that ourselves");
    let more: Vec<_> =
        seen.as_object().unwrap().keys().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(more.is_empty(), "{more:?}");
    let here = fs::canonicalize(folder.path()).unwrap();
    assert_eq!(call_json(&upstream, "process").await["folder"], json!(here));

    // A secret that the server quotes is masked.
    let failure =
        call_with(&upstream, "complain", json!({"text": "very-secret-key is wrong"})).await.unwrap_err();
    assert_eq!(failure.to_string(), "the upstream rejected the request: no: [secret] is wrong");
    assert!(!format!("{upstream:?} {failure:?}").contains("very-secret"));

    fs::remove_file(&secret).unwrap();
    let again = Upstream::new(options(Transport::Stdio {
        argv: vec!["true".to_owned()],
        env: BTreeMap::new(),
        secret_env: BTreeMap::from([("API_KEY".to_owned(), secret)]),
        folder: None,
    }));
    let failure = call(&again.unwrap(), "environment").await.unwrap_err();
    assert!(matches!(failure.error, Error::Secret(..)), "{failure:?}");
}

#[tokio::test]
async fn a_process_that_ends_during_a_call_is_restarted_for_the_next() {
    let upstream = upstream(stdio(&["crash", "2"]));
    let first = process_id(&upstream).await;
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
    assert!(
        matches!(&failure.error, Error::Unavailable(words) if words.contains("exit status: 7")),
        "{failure:?}"
    );
    assert_eq!(upstream.health().state, State::Down);
    let second = process_id(&upstream).await;
    assert_ne!(first, second);
    let health = upstream.health();
    assert_eq!((health.restarts, health.state), (1, State::Up));
}

#[tokio::test]
async fn a_killed_process_is_noticed_without_a_call() {
    let upstream = upstream(stdio(&["normal"]));
    let id = process_id(&upstream).await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("it is noticed", async || (upstream.health().state == State::Down).then_some(())).await;
    // Nothing was sent to the killed process, so the next call succeeds.
    assert_ne!(process_id(&upstream).await, id);
}

#[tokio::test]
async fn a_process_that_ends_at_once_is_restarted_with_pauses() {
    let upstream = upstream(stdio(&["broken"]));
    let start = std::time::Instant::now();
    let mut calls = 0;
    while calls <= 50 {
        let failure = call(&upstream, "echo").await.unwrap_err();
        assert_eq!(failure.fate, Fate::NotRun);
        assert!(failure.to_string().contains("exit status: 3"), "{failure}");
        calls += 1;
        tokio::task::yield_now().await;
    }
    // After pauses of 100, 200, 400, ... ms; most calls fail without a restart.
    let restarts = u32::try_from(upstream.health().restarts).unwrap();
    let pauses = Duration::from_millis(100) * (2_u32.pow(restarts) - 1);
    assert!((2..=10).contains(&restarts), "{restarts} restarts");
    assert!(start.elapsed() >= pauses, "{restarts} restarts in {:?}", start.elapsed());
}

#[tokio::test]
async fn a_silent_process_times_out_and_is_ended() {
    let options = Options { connect_timeout: Duration::from_millis(400), ..stdio(&["silent"]) };
    let upstream = upstream(options);
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert!(matches!(failure.error, Error::TimedOut), "{failure:?}");
    assert_eq!(failure.fate, Fate::NotRun);
    wait_until_none_left("mcp-stdio").await;
}

#[tokio::test]
async fn a_process_that_closes_its_input_is_ended() {
    // Completes the handshake, closes its input, keeps its output open and does not exit by itself.
    let script = r#"
        read discover
        echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"?"}}'
        read initialize
        exec 0<&-
        server='{"name":"x","version":"1"}'
        result='{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":'$server'}'
        echo '{"jsonrpc":"2.0","id":1,"result":'$result'}'
        exec sleep 600
    "#;
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    let transport =
        Transport::Stdio { argv, env: BTreeMap::new(), secret_env: BTreeMap::new(), folder: None };
    let upstream = upstream(options(transport));
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert!(failure.to_string().contains("its process ended"), "{failure}");
    wait_until_none_left("sleep").await;
}

#[tokio::test]
async fn much_output_on_stderr_does_not_block_the_process() {
    let upstream = upstream(stdio(&["normal"]));
    assert_eq!(crate::support::text(&call(&upstream, "shout").await.unwrap()), "done");
}

#[tokio::test]
async fn a_process_serves_many_concurrent_calls() {
    for mode in ["normal", "legacy"] {
        let upstream = upstream(stdio(&[mode]));
        let calls = (0..200).map(async |number| {
            let result = call_with(&upstream, "echo", json!({"number": number})).await.unwrap();
            assert_eq!(crate::support::text(&result), json!({"number": number}).to_string());
        });
        futures_util::future::join_all(calls).await;
    }
}

#[tokio::test]
async fn closing_ends_the_process_and_its_children() {
    for mode in ["normal", "legacy", "family"] {
        let upstream = upstream(stdio(&[mode]));
        let id = process_id(&upstream).await;
        let children = children_of(id);
        assert_eq!(children.len(), usize::from(mode == "family"));
        upstream.close().await;
        for id in children.into_iter().chain([id]) {
            wait_until_ended(id).await;
        }
    }
}

#[tokio::test]
async fn dropping_ends_the_process_and_its_children() {
    for mode in ["normal", "family"] {
        let upstream = upstream(stdio(&[mode]));
        let id = process_id(&upstream).await;
        let children = children_of(id);
        drop(upstream);
        for id in children.into_iter().chain([id]) {
            wait_until_ended(id).await;
        }
    }
}

#[test]
fn the_end_of_the_runtime_ends_the_process_too() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (upstream, ids) = runtime.block_on(async {
        let upstream = upstream(stdio(&["family"]));
        let id = process_id(&upstream).await;
        let mut ids = children_of(id);
        ids.push(id);
        (upstream, ids)
    });
    drop(runtime);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for id in ids {
            wait_until_ended(id).await;
        }
    });
    drop(upstream);
}

#[tokio::test]
async fn an_empty_command_is_refused() {
    for argv in [vec![], vec![String::new()]] {
        let transport =
            Transport::Stdio { argv, env: BTreeMap::new(), secret_env: BTreeMap::new(), folder: None };
        assert!(matches!(Upstream::new(options(transport)), Err(Error::Options(_))));
    }
}
