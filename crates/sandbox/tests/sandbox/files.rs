//! Files: what is collected of a job, and what it sees of the host.

use sandbox::{End, ProblemKind};

use crate::kit::{Kit, sh};

#[tokio::test]
async fn only_regular_files_of_the_workspace_are_collected() {
    let kit = Kit::bwrap().await;
    let mut spec = sh(
        "echo ok >good; ln -s /etc/passwd link; ln -s / root; ln -s ../../etc up; ln good hard; mkfifo fifo; \
                       truncate -s 1T sparse; mkdir d; ln -s /proc/1/environ d/magic; mknod dev c 1 3; \
                       ln /usr/bin/sh stolen; printf x >\"$(printf 'b\\377d')\"; mkdir -p root2/.. ; :",
    );
    spec.outputs = vec!["**".into()];
    let ran = kit.run(spec).await;
    let output = ran.succeeded();
    assert!(output.contains("mknod") && output.contains("Invalid cross-device link"), "{output}");
    let collected = ran.running.collect().await.unwrap();
    let files: Vec<_> = collected.files.iter().map(|it| (it.path.as_str(), it.size)).collect();
    assert_eq!(files, [("good", 3), ("hard", 3)]);
    let link = ProblemKind::NotRegular("symbolic link");
    let problems: Vec<_> = collected.problems.iter().map(|it| (it.path.as_str(), it.why.clone())).collect();
    assert_eq!(
        problems,
        [
            ("b\u{fffd}d", ProblemKind::NotUtf8),
            ("d/magic", link.clone()),
            ("fifo", ProblemKind::NotRegular("FIFO")),
            ("link", link.clone()),
            ("root", link.clone()),
            ("sparse", ProblemKind::TooLarge(1 << 40)),
            ("up", link),
        ]
    );
    kit.remove(ran).await;
}

#[tokio::test]
async fn link_in_the_place_of_a_folder_is_not_followed() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("mkdir real; echo x >real/passwd; ln -s /etc out; ln -s real alias");
    spec.outputs = vec!["out/passwd".into(), "alias/passwd".into(), "real/passwd".into()];
    let ran = kit.run(spec).await;
    ran.succeeded();
    let collected = ran.running.collect().await.unwrap();
    assert_eq!(collected.files.len(), 1, "{collected:?}");
    assert_eq!(collected.files[0].path, "real/passwd");
    kit.remove(ran).await;
}

#[tokio::test]
async fn workspace_of_an_earlier_job_is_never_seen() {
    let kit = Kit::bwrap().await;
    let spec = sh("ls -A /work /tmp /dev/shm | grep -v -e : -e '^$'; ln -s /etc /work/in; echo x >/tmp/x; \
         echo x >/dev/shm/x");
    for _ in 0..2 {
        let ran = kit.run(spec.clone()).await;
        assert_eq!(ran.succeeded(), "");
        kit.remove(ran).await;
    }
}

#[tokio::test]
async fn orphan_writes_nothing_after_the_end() {
    let kit = Kit::bwrap().await;
    let mut spec =
        sh("(setsid sh -c 'while :; do echo x >>log; done' &); while [ ! -s log ]; do :; done; exit 0");
    spec.outputs = vec!["log".into()];
    let ran = kit.run(spec).await;
    ran.succeeded();
    let size = |collected: &sandbox::Collected| collected.files[0].size;
    let first = ran.running.collect().await.unwrap();
    let second = ran.running.collect().await.unwrap();
    assert!(size(&first) > 0);
    assert_eq!((size(&first), &first.files[0].sha256), (size(&second), &second.files[0].sha256));
    kit.remove(ran).await;
}

#[tokio::test]
async fn files_of_root_are_not_readable_although_the_node_is_root() {
    let kit = Kit::bwrap_with(|settings| settings.read_only.push("/etc/shadow".into())).await;
    let before = std::fs::metadata("/etc/shadow").unwrap().modified().unwrap();
    let ran = kit
        .sh("ls /etc/shadow && cat /etc/shadow; echo x >>/etc/shadow; touch /usr/bin/x; rm /usr/bin/env")
        .await;
    let output = ran.text();
    assert!(output.contains("cat: /etc/shadow: Permission denied"), "{output}");
    assert!(
        ran.end != End::Exited { code: 0 } && output.matches("Read-only file system").count() == 2,
        "{output}"
    );
    assert_eq!(std::fs::metadata("/etc/shadow").unwrap().modified().unwrap(), before);
    kit.remove(ran).await;
}

#[tokio::test]
async fn set_user_id_gives_no_rights() {
    let kit = Kit::bwrap().await;
    let script = "cp /usr/bin/id s && chmod 6755 s && ./s -u; grep -v -e nosuid /proc/self/mountinfo; \
                  su -c id </dev/null; grep -e Cap -e NoNew /proc/self/status; setcap cap_net_raw+ep s";
    let ran = kit.sh(script).await;
    let output = ran.text();
    assert!(output.starts_with("1000\n"), "{output}");
    assert!(!output.contains("uid=0") && !output.contains(" / / "), "{output}");
    assert!(output.contains("NoNewPrivs:\t1"), "{output}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(output.contains(&format!("{set}:\t0000000000000000")), "{output}");
    }
    kit.remove(ran).await;
}
