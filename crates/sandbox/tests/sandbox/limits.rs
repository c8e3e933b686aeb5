//! What a job may use.

use std::time::{Duration, Instant};

use sandbox::{End, InputFile, StartError};
use tokio::sync::mpsc;

use crate::kit::{Kit, assert_nothing_left, perl, sh};

#[tokio::test]
async fn fork_bomb_is_held_by_the_limit_of_processes() {
    let kit = Kit::bwrap().await;
    let (other, mut chunks) = kit.start(sh("echo up; sleep 600")).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    let mut spec = sh("b() { b | b & }; b; sleep 600");
    spec.limits.time = Duration::from_secs(1);
    let ran = kit.run(spec).await;
    // The shell itself may be the one that cannot fork.
    assert!(matches!(ran.end, End::Timeout | End::Exited { code: 2 }), "{:?}", ran.end);
    let output = ran.text();
    assert!(output.contains("Cannot fork"), "{output}");
    kit.remove(ran).await;
    other.remove().await;
}

#[tokio::test]
async fn descriptors_are_limited_and_none_is_inherited() {
    let kit = Kit::bwrap().await;
    let mut spec =
        perl("my @f; while (open(my $f, '<', '/dev/null')) { push @f, $f } print scalar(@f), ' ', $! + 0");
    spec.limits.files = 64;
    let ran = kit.run(spec).await;
    // Standard input, output and error are the others; 24 is EMFILE.
    assert_eq!(ran.succeeded(), "61 24");
    kit.remove(ran).await;
    let script = "ls -l /proc/$$/fd | grep -e '->' | grep -v -e pipe: -e /dev/null; \
         cat /proc/1/fd/7; echo >/proc/1/fd/7";
    let ran = kit.sh(script).await;
    // The first process of the sandbox holds the lock of the job's user, which the job cannot open.
    let output = ran.text();
    assert_eq!((output.lines().count(), output.matches("Permission denied").count()), (2, 2), "{output}");
    kit.remove(ran).await;
}

#[tokio::test]
async fn disk_can_be_filled_nowhere() {
    let kit = Kit::bwrap().await;
    for folder in ["/work", "/tmp", "/dev/shm", "/run/cynode"] {
        let ran = kit.sh(&format!("head -c 100M /dev/zero >{folder}/x")).await;
        let end =
            if folder.starts_with("/work") || folder == "/tmp" { End::Disk } else { End::Exited { code: 1 } };
        assert_eq!(ran.end, end, "{folder}: {}", ran.text());
        assert!(ran.text().contains("No space left"), "{}", ran.text());
        kit.remove(ran).await;
    }
    let writable = "for f in / /dev /dev/pts /etc /usr /proc /run /var /home /root; \
         do (: >$f/x) 2>/dev/null && echo $f; done; :";
    let ran = kit.sh(writable).await;
    assert_eq!(ran.succeeded(), "");
    kit.remove(ran).await;
}

#[tokio::test]
async fn inodes_are_bounded_by_memory() {
    let kit = Kit::bwrap().await;
    let mut spec =
        perl("my $i = 0; while (open(my $f, '>', '/work/' . $i++)) { } print $i, ' ', $! + 0; exit 1");
    spec.limits.memory = 24 << 20;
    spec.limits.cpu = 2.0;
    let ran = kit.run(spec).await;
    assert!(matches!(ran.end, End::Oom | End::Disk), "{:?} {}", ran.end, ran.text());
    kit.remove(ran).await;
}

#[tokio::test]
async fn memory_is_limited_in_processes_and_in_files_and_others_live_on() {
    let kit = Kit::bwrap().await;
    let (mut other, mut chunks) = kit.start(sh("echo up; read x </dev/zero & wait; sleep 600")).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    for script in [
        "head -c 300M /dev/zero | tail -c 300M",
        "head -c 300M /dev/zero >/tmp/x",
        "head -c 300M /dev/zero >/dev/shm/x",
    ] {
        let mut spec = sh(script);
        spec.limits.memory = 32 << 20;
        spec.limits.disk = 1 << 30;
        let ran = kit.run(spec).await;
        assert_eq!(ran.end, End::Oom, "{script}: {}", ran.text());
        assert!(ran.usage.memory_peak <= 32 << 20, "{:?}", ran.usage);
        kit.remove(ran).await;
    }
    let ended = tokio::time::timeout(Duration::from_millis(50), other.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
    other.remove().await;
}

fn input(path: &str, mib: usize) -> InputFile {
    InputFile { path: path.into(), content: vec![1; mib << 20].into(), executable: false }
}

/// The node writes them, so the kernel does not count them as the job's.
#[tokio::test]
async fn inputs_count_towards_the_memory_of_their_job() {
    let kit = Kit::bwrap().await;
    let inputs = vec![input("in/a", 30), input("b", 10)];
    let done = End::Exited { code: 0 };
    for (inputs, script, end) in [
        (Vec::new(), "head -c 40M /dev/zero | tail -c 40M >/dev/null", done.clone()),
        (inputs.clone(), "head -c 8M /dev/zero | tail -c 8M >/dev/null; cat in/a b | wc -c", done),
        (inputs.clone(), "head -c 40M /dev/zero | tail -c 40M >/dev/null", End::Oom),
        (inputs.clone(), "head -c 40M /dev/zero >/tmp/x", End::Oom),
        // What is deleted does not become memory of the processes.
        (inputs, "rm -r in b; head -c 40M /dev/zero | tail -c 40M >/dev/null", End::Oom),
    ] {
        let given: u64 = inputs.iter().map(|it| it.content.len() as u64).sum();
        let mut spec = sh(script);
        (spec.limits.memory, spec.limits.disk, spec.inputs) = (64 << 20, 48 << 20, inputs);
        let ran = kit.run(spec).await;
        assert_eq!(ran.end, end, "{given} bytes, {script}: {}", ran.text());
        if script.ends_with("wc -c") {
            assert_eq!(ran.text(), format!("{given}\n"));
        }
        assert!((given..=64 << 20).contains(&ran.usage.memory_peak), "{:?}", ran.usage);
        kit.remove(ran).await;
    }
}

#[tokio::test]
async fn inputs_that_do_not_fit_into_the_memory_of_their_job_are_refused_with_both_sizes() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("true");
    (spec.limits.memory, spec.limits.disk) = (64 << 20, 1 << 30);
    spec.inputs = vec![input("a", 50), input("b", 50)];
    let id = spec.id.clone();
    let (sink, _output) = mpsc::channel(1);
    let error = kit.engine.start(spec, sink).await.unwrap_err();
    assert!(matches!(error, StartError::Spec(_)), "{error}");
    let error = error.to_string();
    for part in ["take 104859648 bytes of memory in 2 files", "may use 67108864 bytes", "`memory_mb`"] {
        assert!(error.contains(part), "{error}");
    }
    assert_nothing_left(&id);
}

#[tokio::test]
async fn processor_time_is_limited() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("while :; do :; done & while :; do :; done");
    spec.limits.cpu = 0.2;
    spec.limits.time = Duration::from_secs(1);
    let ran = kit.run(spec).await;
    assert_eq!(ran.end, End::Timeout);
    assert!(ran.usage.cpu_ms > 50 && ran.usage.cpu_ms < 600, "{:?}", ran.usage);
    kit.remove(ran).await;
}

#[tokio::test]
async fn time_is_limited_for_processes_that_ignore_detach_or_stop() {
    let kit = Kit::bwrap().await;
    for script in [
        "trap '' TERM; sleep 600; sleep 600",
        "(setsid sh -c 'trap \"\" TERM; sleep 600 & sleep 600' &); trap '' TERM; sleep 600; sleep 600",
        "sleep 600 & kill -STOP $!; kill -STOP $$; sleep 600",
        "setsid perl -e 'fork && exit; fork && exit; sleep 600'; sleep 600",
    ] {
        let mut spec = sh(script);
        spec.limits.time = Duration::from_millis(200);
        let started = Instant::now();
        let ran = kit.run(spec).await;
        assert_eq!(ran.end, End::Timeout, "{script}: {}", ran.text());
        assert!(started.elapsed() < Duration::from_secs(5), "{script}: {:?}", started.elapsed());
        kit.remove(ran).await;
    }
}

#[tokio::test]
async fn output_is_limited_exactly() {
    let kit = Kit::bwrap().await;
    for script in ["yes", "head -c 1G /dev/zero", "yes & yes >&2 & trap '' TERM; wait"] {
        let mut spec = sh(script);
        spec.limits.output = 300_001;
        let ran = kit.run(spec).await;
        assert_eq!((ran.end.clone(), ran.output.len()), (End::Output, 300_001), "{script}");
        kit.remove(ran).await;
    }
    let mut spec = sh("head -c 300001 /dev/zero");
    spec.limits.output = 300_001;
    let ran = kit.run(spec).await;
    assert_eq!((ran.end.clone(), ran.output.len()), (End::Exited { code: 0 }, 300_001));
    kit.remove(ran).await;
}

#[tokio::test]
async fn output_arrives_byte_by_byte_at_a_slow_consumer() {
    let kit = Kit::bwrap().await;
    let mut spec = perl("print pack('C', $_ % 256) x 5000 for 0 .. 511; print \"\\xff\\0\\n\"");
    spec.limits.output = 10 << 20;
    let (mut running, mut chunks) = kit.start(spec).await;
    let mut output = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        output.extend_from_slice(&chunk);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(running.wait().await, End::Exited { code: 0 });
    let mut expected: Vec<u8> = (0..512_u32).flat_map(|it| [(it % 256) as u8; 5000]).collect();
    expected.extend_from_slice(b"\xff\0\n");
    assert!(output == expected);
    running.remove().await;
}

#[tokio::test]
async fn pipe_that_is_held_open_does_not_delay_the_end() {
    let kit = Kit::bwrap().await;
    let started = Instant::now();
    let ran = kit.sh("echo a; sleep 600 & (setsid sleep 600 &) ; echo b").await;
    assert_eq!(ran.succeeded(), "a\nb\n");
    assert!(started.elapsed() < Duration::from_secs(5));
    kit.remove(ran).await;
}
