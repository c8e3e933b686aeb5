//! Jobs of every kind, from the tool call to the artifact.

use serde_json::json;

use crate::{host::wait_until_clean, stage::Stage};

#[tokio::test]
async fn job_runs_and_leaves_its_log_and_its_files_on_the_task() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let _node = builder.start().await;
    let files = json!([
        { "path": "in/names.txt", "text": "b\na\n" },
        { "path": "bin/tool.sh", "text": "#!/bin/sh\nsort in/names.txt\n", "executable": true },
    ]);
    let more = json!({ "files": files, "outputs": ["out/*.txt"], "env": { "GREETING": "hello" } });
    let script = "mkdir out; echo $GREETING; bin/tool.sh > out/sorted.txt; pwd; id -u";
    let id = stage.script(script, more).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["status"], &job["exit_code"]), (&json!("completed"), &json!(0)), "{job}");
    assert_eq!(job["files"][0]["path"], "out/sorted.txt", "{job}");
    assert_eq!(stage.artifact("out/sorted.txt").await, "a\nb\n");
    let log = stage.log(&id).await;
    assert!(log.starts_with("hello\n/work\n"), "{log}");
    assert_eq!(stage.results(&id).await, 1);
    wait_until_clean(&builder.data(), &[id]).await;
}

#[tokio::test]
async fn artifact_of_the_task_is_a_file_of_the_job() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let content = "x".repeat(200_000);
    let put = json!({ "task_id": stage.task, "path": "data.txt", "content": content });
    stage.call("artifact.put", put).await;
    let files = json!([{ "path": "copy.txt", "artifact_path": "data.txt" }]);
    let id = stage.script("wc -c < copy.txt", json!({ "files": files })).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
    assert_eq!(stage.log(&id).await.trim(), "200000");
}

/// The job's fault, not the machine's: it ends at once, and the node goes on.
#[tokio::test]
async fn job_whose_files_do_not_fit_on_its_disk_ends_with_the_sizes() {
    let stage = Stage::start().await;
    let node = stage.node("n1").await.start().await;
    for path in ["a.bin", "b.bin"] {
        let put = json!({ "task_id": stage.task, "path": path, "content": "x".repeat(750_000) });
        stage.call("artifact.put", put).await;
    }
    let large = json!({ "artifacts": ["*.bin"], "limits": { "disk_mb": 1 } });
    // Less than 1 MiB in all, but each file takes a page.
    for n in 0..300 {
        let put = json!({ "task_id": stage.task, "path": format!("f{n}.txt"), "content": "x" });
        stage.call("artifact.put", put).await;
    }
    let many = json!({ "artifacts": ["*.txt"], "limits": { "disk_mb": 1 } });
    for (more, parts) in [
        (large, vec!["`disk_mb` is 1 (1048576 bytes)", "1500000 bytes"]),
        (many, vec!["`disk_mb`", "300 bytes in 300 files", "of 1048576 bytes"]),
    ] {
        let id = stage.script("true", more).await;
        let job = stage.ended(&id).await;
        assert_eq!((&job["end"]["how"], &job["attempt"]), (&json!("engine_failed"), &json!(1)), "{job}");
        let why = job["end"]["why"].as_str().unwrap();
        assert!(parts.iter().all(|part| why.contains(part)), "{parts:?}: {why}");
    }
    let fits = json!({ "artifacts": ["*.bin"], "limits": { "disk_mb": 2 } });
    let fits = stage.script("cat *.bin | wc -c", fits).await;
    assert_eq!(stage.ended(&fits).await["exit_code"], 0);
    assert!(!node.log().contains("handing it back"), "{}", node.log());
}

/// Refused before any file is fetched: the node would have to hold them.
#[tokio::test]
async fn job_whose_files_do_not_fit_into_its_memory_ends_with_the_sizes() {
    let stage = Stage::start().await;
    let node = stage.node("n1").await.start().await;
    for path in ["a.bin", "b.bin"] {
        let put = json!({ "task_id": stage.task, "path": path, "content": "x".repeat(750_000) });
        stage.call("artifact.put", put).await;
    }
    let run = async |memory_mb: u32| {
        let more = json!({ "artifacts": ["*.bin"], "limits": { "memory_mb": memory_mb } });
        let id = stage.script("cat *.bin | wc -c", more).await;
        stage.ended(&id).await
    };
    let job = run(5).await;
    assert_eq!((&job["end"]["how"], &job["attempt"]), (&json!("engine_failed"), &json!(1)), "{job}");
    let why = job["end"]["why"].as_str().unwrap();
    for part in ["take 1509376 bytes of memory in 2 files", "may use 5242880 bytes", "`memory_mb`"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(run(16).await["exit_code"], 0);
    assert!(!node.log().contains("handing it back"), "{}", node.log());
}

#[tokio::test]
async fn every_way_to_end_is_reported() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let _node = builder.start().await;
    let limits = |limits: serde_json::Value| json!({ "limits": limits });
    let cases = [
        ("exit 3", json!({}), json!({ "how": "exited", "code": 3 })),
        ("kill -9 $$", json!({}), json!({ "how": "signalled", "signal": 9 })),
        ("sleep 60", limits(json!({ "seconds": 1 })), json!({ "how": "timeout" })),
        ("yes", limits(json!({ "output_kb": 64 })), json!({ "how": "output" })),
        (
            "head -c 200000000 /dev/zero | tail -c 150000000 | wc -c",
            limits(json!({ "memory_mb": 64 })),
            json!({ "how": "oom" }),
        ),
        (
            "head -c 50000000 /dev/zero > file",
            limits(json!({ "disk_mb": 8, "memory_mb": 256 })),
            json!({ "how": "disk" }),
        ),
    ];
    let mut ids = Vec::new();
    for (script, more, _) in &cases {
        ids.push(stage.script(script, more.clone()).await);
    }
    for ((script, _, end), id) in cases.iter().zip(&ids) {
        let job = stage.ended(id).await;
        assert_eq!(&job["end"], end, "{script}: {job}");
        assert_eq!(job["status"], "failed", "{script}");
    }
    wait_until_clean(&builder.data(), &ids).await;
}

#[tokio::test]
async fn command_that_does_not_exist_is_named() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let id = stage.run(json!({ "command": ["no-such-program", "x"] }), json!({})).await;
    let job = stage.ended(&id).await;
    assert_eq!(job["status"], "failed", "{job}");
    let (end, log) = (job["end"].to_string(), stage.log(&id).await);
    assert!(format!("{end}{log}").contains("no-such-program"), "{job} {log}");
}

#[tokio::test]
async fn running_job_is_cancelled_and_says_so() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let _node = builder.start().await;
    let id = stage.script("trap '' TERM; echo started; sleep 300", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["status"], &job["end"]["how"]), (&json!("canceled"), &json!("cancelled")), "{job}");
    wait_until_clean(&builder.data(), &[id]).await;
}

#[tokio::test]
async fn job_that_no_node_has_is_cancelled_at_once_and_never_runs() {
    let stage = Stage::start().await;
    let id = stage.script("echo never", json!({})).await;
    let waiting = stage.job(&id).await["waiting_because"].to_string();
    assert!(waiting.contains("no node"), "{waiting}");
    stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
    assert_eq!(stage.ended(&id).await["end"]["how"], "cancelled");
    let node = stage.node("n1").await.start().await;
    let second = stage.script("echo later", json!({})).await;
    stage.ended(&second).await;
    assert_eq!(stage.results(&id).await, 1);
    assert!(!node.log().contains(&format!("job{{job.id={id}")) || stage.log(&id).await.is_empty());
}

/// A gateway that misses a message in the queue sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn job_with_two_messages_runs_once() {
    let stage = Stage::start().await;
    let id = stage.script("echo once; sleep 1", json!({ "repeat": "never" })).await;
    stage.wait_until_queued(&id).await;
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let queue = jetstream.get_stream(subjects::streams::JOBS).await.unwrap();
    let sent = queue.get_last_raw_message_by_subject("jobs.class.default_bwrap").await.unwrap();
    let copy = jetstream.publish("jobs.class.default_bwrap", sent.payload).await.unwrap();
    copy.await.unwrap();
    assert_eq!(stage.queued(&id).await, 2);
    let _nodes = (stage.node("n1").await.start().await, stage.node("n2").await.start().await);
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["attempt"]), (&json!(0), &json!(1)), "{job}");
    assert_eq!((stage.log(&id).await.as_str(), stage.results(&id).await), ("once\n", 1));
    testkit::eventually("both messages are settled", || async {
        (stage.queued(&id).await == 0).then_some(())
    })
    .await;
}

/// Binary output arrives byte by byte, and a line without an end is no trouble.
#[tokio::test]
async fn output_is_kept_whole_whatever_it_contains() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let script = r"printf '\377\000\376 no newline'; head -c 300000 /dev/zero | tr '\0' x";
    let id = stage.script(script, json!({})).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["log"]["bytes"]), (&json!(0), &json!(300_014)), "{job}");
    let piece =
        stage.call("sandbox.job.logs", json!({ "job_id": id, "encoding": "base64", "limit": 16 })).await;
    assert!(piece["content"].as_str().unwrap().starts_with("/wD+IG5vIG5l"), "{piece}");
    assert_eq!(stage.log(&id).await.matches('x').count(), 300_000);
}

/// An operator may limit the messages of the stream to less than the server takes.
#[tokio::test]
async fn output_is_kept_whole_if_the_stream_takes_only_small_messages() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let limit_messages = async |bytes: i32| {
        let mut logs = jetstream.get_stream(subjects::streams::JOB_LOGS).await.unwrap();
        let mut config = logs.info().await.unwrap().config.clone();
        config.max_message_size = bytes;
        jetstream.update_stream(config).await.unwrap();
    };
    limit_messages(2_000).await;
    let id = stage.script("seq 1 20000", json!({})).await;
    let job = stage.ended(&id).await;
    let expected: String = (1..=20_000).map(|line| format!("{line}\n")).collect();
    assert_eq!((&job["exit_code"], &job["log"]["bytes"]), (&json!(0), &json!(expected.len())), "{job}");
    assert!(job["log"]["chunks"].as_u64().unwrap() > 50 && job["problems"].is_null(), "{job}");
    assert_eq!(stage.log(&id).await, expected);
    // Too small for any chunk: the job says what is missing.
    limit_messages(100).await;
    let id = stage.script("echo lost", json!({})).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["log"]["bytes"]), (&json!(0), &json!(0)), "{job}");
    assert!(job["problems"].to_string().contains("5 bytes of the log are not stored"), "{job}");
}

#[tokio::test]
async fn file_that_cannot_be_kept_is_named_and_the_others_are_kept() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let script = "echo good > good.txt; ln -s /etc/passwd link.txt; mkfifo pipe.txt; mkdir dir.txt";
    let id = stage.script(script, json!({ "outputs": ["*.txt"] })).await;
    let job = stage.ended(&id).await;
    assert_eq!(job["exit_code"], 0, "{job}");
    let kept: Vec<&str> =
        job["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(kept, ["good.txt"], "{job}");
    let problems = job["problems"].to_string();
    assert!(problems.contains("link.txt") && problems.contains("pipe.txt"), "{problems}");
}

/// A job decides how many files it leaves and what they are called; its result stays one small message.
#[tokio::test]
async fn job_that_leaves_very_many_files_keeps_its_own_end() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let script = "name=$(printf '%0150d' 0); mkdir links files
        i=0; while [ $i -lt 20000 ]; do ln -s x links/$name$i; i=$((i + 1)); done
        i=0; while [ $i -lt 3000 ]; do : > files/$i; i=$((i + 1)); done";
    let id = stage.script(script, json!({ "outputs": ["**"] })).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["end"], &job["attempt"]), (&json!({ "how": "exited", "code": 0 }), &json!(1)), "{job}");
    assert_eq!(job["files"].as_array().unwrap().len(), 64);
    let problems = job["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 51, "{problems:?}");
    assert!(problems[50].as_str().unwrap().ends_with("more problems"), "{problems:?}");
}

/// A job decides how large a file is; a node holds a piece of it at a time.
#[tokio::test]
async fn job_that_leaves_a_huge_file_takes_no_memory_of_its_node() {
    let stage = Stage::start().await;
    let node = stage.node("n1").await.start().await;
    let script = "truncate -s 900M huge.bin; head -c 3000000 /dev/zero | tr '\\0' x > large.txt";
    let more = json!({ "outputs": ["*"], "limits": { "disk_mb": 1000, "memory_mb": 64 } });
    let id = stage.script(script, more).await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["end"]["how"], &job["attempt"]), (&json!("exited"), &json!(1)), "{job}");
    let problems = job["problems"].to_string();
    assert!(problems.contains("huge.bin") && problems.contains("sandbox.files.max_mb"), "{problems}");
    let file = &job["files"][0];
    assert_eq!((&file["path"], &file["size"]), (&json!("large.txt"), &json!(3_000_000)), "{job}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 400_000, "the node took {peak} KiB");
}
