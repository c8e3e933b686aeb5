//! The runner of workflows of a stack: killed, and one that cannot run.

use std::{fs, os::unix::fs::PermissionsExt};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use testkit::{Finished, Process, cynodectl, eventually_within};

use crate::{StackFolder, TIMEOUT, USAGE, shows};

/// The runner of a stack is killed while it waits for a plan. Its supervisor starts another, which joins the
/// plan that was begun, and the task is done.
#[tokio::test]
async fn killed_workflow_runner_of_a_stack_is_started_again_and_the_task_is_done() {
    let stack = StackFolder::new();
    let log = stack.folder.path().join("up.txt");
    // Long enough to be killed in.
    let up = stack.up(&["--stay", "--no-node", "--think-time=2s"]);
    let _supervisor = Process::start(&cynodectl(), &up, &[], &log);
    shows(&log, "the stack is up").await;
    let link = [
        format!("--server=nats://127.0.0.1:{}", stack.nats_port),
        format!("--gateway=http://127.0.0.1:{}", stack.gateway_port + 1),
        format!("--admin-token-file={}", stack.data().join("gateway/admin.token").display()),
        "--json".to_owned(),
    ];
    let ctl = async |command: &[&str]| -> Finished {
        let arguments = link.iter().cloned().chain(command.iter().map(|&word| word.to_owned()));
        stack.run(arguments.collect()).await
    };
    let created = ctl(&["handoff", "chat", "Do: list tasks", "--user", "you"]).await;
    assert_eq!(created.code, 0, "{created:?}");
    let shown = async || -> Value {
        let found = ctl(&["workflows", "show", "list-tasks"]).await;
        serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"))
    };
    eventually_within(TIMEOUT, "the plan to be begun", async || {
        (shown().await["effects"][0]["kind"] == "plan").then_some(())
    })
    .await;
    let pid = |stack: &StackFolder| {
        let found = stack.processes().into_iter().find(|(name, _)| name == "workflow-1");
        found.expect("a runner").1
    };
    let killed = pid(&stack);
    kill(Pid::from_raw(killed.cast_signed()), Signal::SIGKILL).unwrap();
    let before = shown().await;
    assert_eq!((&before["status"], &before["epoch"]), (&json!("running"), &json!(1)), "{before}");

    let followed = ctl(&["workflows", "show", "list-tasks", "--follow"]).await;
    assert_eq!(followed.code, 0, "{followed:?}");
    let after = shown().await;
    assert_eq!((&after["status"], &after["epoch"]), (&json!("done"), &json!(2)), "{after}");
    let effects = after["effects"].as_array().unwrap();
    let begun: Vec<&str> = effects.iter().map(|effect| effect["kind"].as_str().unwrap()).collect();
    assert_eq!(begun, ["plan", "chat", "review"], "nothing is begun twice: {after}");
    assert_ne!(pid(&stack), killed);
    let task = ctl(&["tasks", "show", "list-tasks"]).await;
    assert!(task.stdout.contains("\"status\":\"completed\""), "{task:?}");
    assert_eq!(stack.run(stack.down()).await.code, 0);
}

/// A runner whose packages are missing ends at once. The stack starts, and says so.
#[tokio::test]
async fn stack_starts_without_a_runner_that_cannot_run() {
    let stack = StackFolder::new();
    let broken = stack.folder.path().join("cynode-workflow");
    let log = stack.folder.path().join("up.txt");
    let with_broken = |script: &str| {
        fs::write(&broken, script).unwrap();
        fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
        let mut arguments = stack.up(&["--stay", "--no-node"]);
        arguments.retain(|argument| !argument.starts_with("--workflow-runner"));
        arguments.push(format!("--workflow-runner={}", broken.display()));
        arguments
    };
    let version = "#!/bin/sh\ntest \"$1\" = --version && exit 0\necho no such package >&2\nexit 1\n";
    for (script, said) in [
        ("#!/bin/sh\necho no Python here >&2\nexit 1\n", "cynode-workflow: no Python here"),
        ("#!/nowhere/python\n", "no runner, so workflows wait"),
        // It says its version and then finds no packages: it is tried again and again.
        (version, "workflow-1 exited with code 1; restarting"),
    ] {
        fs::write(&log, "").unwrap();
        let mut supervisor = Process::start(&cynodectl(), &with_broken(script), &[], &log);
        shows(&log, "the stack is up").await;
        shows(&log, said).await;
        assert_eq!(stack.run(stack.down()).await.code, 0);
        assert!(supervisor.wait(TIMEOUT).success());
    }
    let mut arguments = stack.up(&["--stay"]);
    arguments.retain(|argument| !argument.starts_with("--workflow-runner"));
    arguments.push("--workflow-runner=nowhere".to_owned());
    let refused = stack.run(arguments).await;
    assert_eq!(refused.code, USAGE, "{refused:?}");
    assert!(refused.stderr.contains("cynode-workflow not found"), "{refused:?}");
}
