//! The life of a job: start, output, end, outputs, removal.

use std::time::{Duration, Instant};

use sandbox::{End, InputFile, Spec, StartError, Stop};
use tokio::sync::mpsc;

use crate::kit::{Kit, assert_nothing_left, sh};

#[tokio::test]
async fn job_prints_exits_and_leaves_nothing() {
    let kit = Kit::bwrap().await;
    let ran = kit.sh("echo out; echo err >&2; id -u; pwd; exit 3").await;
    assert_eq!((ran.end.clone(), ran.text()), (End::Exited { code: 3 }, "out\nerr\n1000\n/work\n".into()));
    assert!(
        ran.usage.memory_peak > 0 && ran.usage.output_bytes == ran.output.len() as u64,
        "{:?}",
        ran.usage
    );
    kit.remove(ran).await;
}

#[tokio::test]
async fn inputs_are_there_and_outputs_are_collected() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("cat in/a.txt; ./in/run.sh; mkdir -p out/deep; echo x >out/deep/b.txt; echo y >c.txt");
    spec.inputs = vec![
        InputFile { path: "in/a.txt".into(), content: "hello\n".into(), executable: false },
        InputFile { path: "in/run.sh".into(), content: "#!/bin/sh\necho ran\n".into(), executable: true },
    ];
    spec.outputs = vec!["out/**".into(), "c.txt".into()];
    let ran = kit.run(spec).await;
    assert_eq!(ran.succeeded(), "hello\nran\n");
    let collected = ran.running.collect().await.unwrap();
    kit.remove(ran).await;
    let paths: Vec<_> = collected.files.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["c.txt", "out/deep/b.txt"]);
    assert!(collected.problems.is_empty());
    assert_eq!(collected.files[1].read_piece(0, 64).await.unwrap(), "x\n");
    assert_eq!(collected.files[1].sha256, "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac");
}

#[tokio::test]
async fn engine_holds_all_attempts_of_its_self_test() {
    let kit = Kit::bwrap().await;
    let test = sandbox::self_test(&kit.engine).await;
    assert!(test.has_held(), "{:#?}", test.attempts);
    assert!(test.attempts.len() >= 12);
}

#[tokio::test]
async fn cancelled_job_may_finish_its_work_within_the_grace() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    spec.term_grace = Duration::from_secs(10);
    let id = spec.id.clone();
    let (mut running, mut chunks) = kit.start(spec).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    running.stop(Stop::Cancelled);
    running.stop(Stop::Timeout);
    let mut last = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        last.extend_from_slice(&chunk);
    }
    assert!(last.ends_with(b"bye\n"), "{last:?}");
    assert_eq!(running.wait().await, End::Cancelled);
    running.remove().await;
    assert_nothing_left(&id);
}

#[tokio::test]
async fn dropped_job_is_killed_and_removed() {
    let kit = Kit::bwrap().await;
    let spec = sh("trap '' TERM; echo up; sleep 600");
    let id = spec.id.clone();
    let (running, mut chunks) = kit.start(spec).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    drop(running);
    kit.host().settled().await;
    assert_nothing_left(&id);
}

#[tokio::test]
async fn job_whose_start_is_given_up_leaves_nothing() {
    let kit = Kit::bwrap().await;
    for wait in [0, 1, 2, 4, 8, 16] {
        let spec = sh("sleep 600");
        let id = spec.id.clone();
        let (sink, _output) = mpsc::channel(1);
        let started = tokio::time::timeout(Duration::from_millis(wait), kit.engine.start(spec, sink)).await;
        drop(started);
        kit.host().settled().await;
        assert_nothing_left(&id);
    }
}

#[tokio::test]
async fn job_that_cannot_be_run_says_why_and_leaves_nothing() {
    let kit = Kit::bwrap().await;
    let (sink, _output) = mpsc::channel(1);
    let refused = |spec: Spec| kit.engine.start(spec, sink.clone());
    let mut spec = sh("true");
    spec.image = Some("sha256:0".into());
    assert!(matches!(refused(spec).await, Err(StartError::NoImage(_))));
    let mut spec = sh("true");
    spec.outputs = vec!["[".into()];
    assert!(matches!(refused(spec).await, Err(StartError::Spec(_))));
    let mut spec = sh("true");
    spec.limits.disk = 4096;
    spec.inputs = vec![InputFile { path: "a".into(), content: vec![0; 9999].into(), executable: false }];
    let id = spec.id.clone();
    let error = refused(spec).await.unwrap_err().to_string();
    assert!(error.contains("do not fit into the workspace, of 4096 bytes"), "{error}");
    assert_nothing_left(&id);
    let (running, mut chunks) = kit.start(Spec { id: "same".into(), ..sh("echo up; sleep 600") }).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    assert!(matches!(refused(Spec { id: "same".into(), ..sh("true") }).await, Err(StartError::InUse(_))));
    running.remove().await;
}

#[tokio::test]
async fn program_that_does_not_exist_fails_the_job() {
    let kit = Kit::bwrap().await;
    let ran = kit.run(Spec { command: vec!["no-such-program".into()], ..sh("") }).await;
    assert_eq!(ran.end, End::Exited { code: 1 });
    assert!(ran.text().contains("no-such-program: No such file"), "{}", ran.text());
    kit.remove(ran).await;
}

#[tokio::test]
async fn jobs_run_at_the_same_time_as_users_of_their_own() {
    let kit = Kit::bwrap().await;
    let (first, mut chunks) = kit.start(sh("touch /work/a; echo up; sleep 600")).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    let started = Instant::now();
    for _ in 0..10 {
        let ran = kit.sh("ls /work /tmp").await;
        assert_eq!(ran.succeeded(), "/tmp:\n\n/work:\n");
        kit.remove(ran).await;
    }
    // The goal is 60 ms per job; a busy machine gets a lot of slack.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    first.remove().await;
}
