//! What a job sees of the node, of other processes and of other jobs.

use std::{
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixListener},
};

use sandbox::End;

use crate::kit::{Kit, perl, sh};

#[tokio::test]
async fn secrets_of_the_node_are_not_in_any_process() {
    let kit = Kit::bwrap().await;
    let ran =
        kit.sh("cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; cat /proc/1/environ | wc -c").await;
    let output = ran.succeeded();
    // The tests' own environment stands for the node's.
    for (name, value) in
        std::env::vars().filter(|(name, value)| value.len() > 8 && name != "PATH" && name != "HOME")
    {
        assert!(!output.contains(&format!("{name}={value}")), "{name}");
    }
    assert!(output.ends_with("\n0\n") && !output.contains("cargo"), "{output}");
    kit.remove(ran).await;
}

#[tokio::test]
async fn environment_is_what_the_job_was_given() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("env | sort");
    spec.env = vec![("A".into(), "x y\nz".into()), ("LANG".into(), "C".into())];
    let ran = kit.run(spec).await;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(ran.succeeded(), format!("A=x y\nHOME=/work\nLANG=C\nPATH={path}\nPWD=/work\nz\n"));
    kit.remove(ran).await;
}

#[tokio::test]
async fn other_processes_are_neither_seen_nor_killed() {
    let kit = Kit::bwrap().await;
    let (mut other, mut chunks) = kit.start(sh("echo up; sleep 600")).await;
    assert_eq!(chunks.recv().await.unwrap(), "up\n");
    let ran = kit.sh("sleep 600 & ls -d /proc/[0-9]* | wc -l; kill -9 -1; wait $!; echo $?").await;
    // All that it finds to kill is its own child.
    let output = ran.succeeded();
    let (processes, status) = output.split_once('\n').unwrap();
    assert!(processes.parse::<u32>().unwrap() <= 5 && status.contains("137"), "{output}");
    kit.remove(ran).await;
    let ended = tokio::time::timeout(std::time::Duration::from_millis(50), other.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
    other.remove().await;
}

#[tokio::test]
async fn sockets_of_the_host_are_out_of_reach() {
    let kit = Kit::bwrap().await;
    let name = format!("cynode-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!(
        "use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); \
         print connect($s, pack_sockaddr_un(\"\\0{name}\")) ? 'reached' : $! + 0, \"\\n\"; \
         print join(' ', glob('/run/* /var/run/* /run/cynode/* /tmp/*')), \"\\n\""
    );
    let ran = kit.run(perl(&connect)).await;
    assert_eq!(ran.succeeded(), format!("{}\n/run/cynode\n", libc::ECONNREFUSED));
    assert!(listener.accept().is_err());
    kit.remove(ran).await;
}

#[tokio::test]
async fn socket_that_the_job_was_given_is_served_by_the_host() {
    let kit = Kit::bwrap().await;
    let path = kit.data.path().join("node/echo.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let mut spec = perl(
        "use Socket; for (1, 2) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; \
         connect($s, pack_sockaddr_un('/run/cynode/mcp')) or die \"$!\"; $s->autoflush(1); \
         print $s \"ping $_\\n\"; shutdown($s, 1); print <$s>; }",
    );
    spec.command.insert(1, "-MIO::Handle".into());
    spec.sockets = vec![(path, "mcp".into())];
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        }
    };
    let ran = tokio::select! {
        ran = kit.run(spec) => ran,
        () = serve => unreachable!(),
    };
    assert_eq!(ran.succeeded(), "ping 1\nping 2\n");
    kit.remove(ran).await;
}

#[tokio::test]
async fn control_groups_and_devices_of_the_host_are_not_there() {
    let kit = Kit::bwrap().await;
    let ran = kit
        .sh("ls -A /sys; cat /proc/self/cgroup; ls /dev; echo x >/proc/sys/kernel/hostname; \
                      echo 1 >/proc/sysrq-trigger; hostname")
        .await;
    let output = ran.text();
    assert!(output.contains("'/sys': No such file"), "{output}");
    assert!(
        output.lines().filter(|it| it.contains(":/") && !it.contains("sh:")).all(|it| it.ends_with(":/")),
        "{output}"
    );
    let devices: Vec<_> = output.lines().filter(|it| !it.contains([':', ' '])).collect();
    let expected = [
        "console", "core", "fd", "full", "job", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ];
    assert!(devices.iter().all(|it| expected.contains(it)), "{devices:?}");
    kit.remove(ran).await;
}

#[tokio::test]
async fn core_is_not_dumped() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("ulimit -c; ulimit -c unlimited; kill -SEGV $$");
    spec.outputs = vec!["**".into()];
    let ran = kit.run(spec).await;
    assert_eq!(ran.end, End::Signalled { signal: 11 });
    assert!(ran.text().starts_with("0\n"), "{}", ran.text());
    assert!(ran.running.collect().await.unwrap().files.is_empty());
    kit.remove(ran).await;
}
