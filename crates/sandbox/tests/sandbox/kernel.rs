//! System calls that a job may not make.

use std::{collections::BTreeMap, fmt::Write};

use libc::{ENOSYS, EPERM, c_long};
use sandbox::{End, InputFile};

use crate::kit::{Kit, perl, sh};

#[tokio::test]
async fn dangerous_system_calls_are_denied() {
    let denied: &[(&str, c_long, &str)] = &[
        ("ptrace", libc::SYS_ptrace, "0, 0, 0, 0"),
        ("process_vm_readv", libc::SYS_process_vm_readv, "1, 0, 0, 0, 0, 0"),
        ("process_vm_writev", libc::SYS_process_vm_writev, "1, 0, 0, 0, 0, 0"),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, "0, 0, 0"),
        ("mount", libc::SYS_mount, "'x', '/tmp', 'tmpfs', 0, 0"),
        ("umount2", libc::SYS_umount2, "'/tmp', 2"),
        ("pivot_root", libc::SYS_pivot_root, "'/tmp', '/tmp'"),
        ("chroot", libc::SYS_chroot, "'/tmp'"),
        ("fsopen", libc::SYS_fsopen, "'tmpfs', 0"),
        ("fsmount", libc::SYS_fsmount, "0, 0, 0"),
        ("move_mount", libc::SYS_move_mount, "0, '/tmp', 0, '/work', 0"),
        ("open_tree", libc::SYS_open_tree, "-100, '/', 1"),
        ("mount_setattr", libc::SYS_mount_setattr, "-100, '/', 0, 0, 0"),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "-100, 0, 0"),
        ("name_to_handle_at", libc::SYS_name_to_handle_at, "-100, '/', 0, 0, 0"),
        ("unshare", libc::SYS_unshare, "0x10000000"),
        ("setns", libc::SYS_setns, "0, 0"),
        ("clone", libc::SYS_clone, "0x10000000 | 17, 0, 0, 0, 0"),
        ("clone_newnet", libc::SYS_clone, "0x40000000 | 17, 0, 0, 0, 0"),
        ("bpf", libc::SYS_bpf, "0, 0, 0"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1, 0"),
        ("keyctl", libc::SYS_keyctl, "0, 0, 0, 0, 0"),
        ("add_key", libc::SYS_add_key, "'user', 'a', 'b', 1, -3"),
        ("userfaultfd", libc::SYS_userfaultfd, "0"),
        ("perf_event_open", libc::SYS_perf_event_open, "0, 0, 0, 0, 0"),
        ("netlink", libc::SYS_socket, "16, 3, 0"),
        ("vsock", libc::SYS_socket, "40, 1, 0"),
        ("packet", libc::SYS_socket, "17, 2, 0"),
        ("raw", libc::SYS_socket, "2, 3, 1"),
        ("raw6", libc::SYS_socket, "10, 3 | 02000000, 58"),
        ("reboot", libc::SYS_reboot, "0, 0, 0, 0"),
        ("syslog", libc::SYS_syslog, "3, 0, 0"),
    ];
    let mut program = String::new();
    for (name, call, arguments) in denied {
        write!(program, "t('{name}', {call}, {arguments}); ").unwrap();
    }
    // A newer call, and one of the x32 ABI.
    write!(
        program,
        "t('clone3', {}, 0, 88); t('newer', 1000); t('x32', 0x40000000 + 39); ",
        libc::SYS_clone3
    )
    .unwrap();
    write!(program, "t('inet', {}, 2, 1, 0); t('unix', {}, 1, 1, 0)", libc::SYS_socket, libc::SYS_socket)
        .unwrap();
    let kit = Kit::bwrap().await;
    let ran = kit.run(perl(&program)).await;
    let output = ran.succeeded();
    let got: BTreeMap<_, _> = output.lines().map(|it| it.split_once(' ').unwrap()).collect();
    for (name, ..) in denied {
        assert_eq!(got[name], EPERM.to_string(), "{name}");
    }
    for name in ["clone3", "newer", "x32"] {
        assert_eq!(got[name], ENOSYS.to_string(), "{name}");
    }
    assert_eq!((got["inet"], got["unix"]), ("done", "done"));
    kit.remove(ran).await;
}

#[tokio::test]
async fn characters_cannot_be_typed_into_a_terminal() {
    let kit = Kit::bwrap().await;
    let ran = kit
        .run(perl(
            "open(my $m, '+<', '/dev/ptmx') or die $!; my $n = pack('i', 0); \
             ioctl($m, 0x40045431, $n) or die $!; ioctl($m, 0x80045430, $n) or die $!; \
             open(my $t, '+<', '/dev/pts/' . unpack('i', $n)) or die $!; my $x = 'x'; \
             print -t $t ? 'terminal ' : 'none ', ioctl($t, 0x5412, $x) ? 'typed' : $! + 0, \
             ' ', ioctl($t, 0x100000000 + 0x5412, $x) ? 'typed' : $! + 0",
        ))
        .await;
    assert_eq!(ran.succeeded(), "terminal 1 1");
    kit.remove(ran).await;
}

#[tokio::test]
async fn user_namespaces_cannot_be_nested() {
    let kit = Kit::bwrap().await;
    let ran = kit.sh("unshare -U true; unshare -n true; bwrap --ro-bind / / true; exit 5").await;
    let output = ran.text();
    assert_eq!(ran.end, End::Exited { code: 5 });
    assert_eq!(
        output.matches("Operation not permitted").count() + output.matches("No permissions").count(),
        3,
        "{output}"
    );
    kit.remove(ran).await;
}

/// A program of 64 bits that makes a system call of 32 bits, then exits with 0.
#[cfg(target_arch = "x86_64")]
fn program_with_a_call_of_32_bits() -> Vec<u8> {
    let code = [
        0xb8, 20, 0, 0, 0, // mov eax, getpid of i386
        0xcd, 0x80, // int 0x80
        0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, // exit(0)
    ];
    let base = 0x40_0000_u64;
    let size = 120 + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    elf.extend_from_slice(&(base + 120).to_le_bytes());
    elf.extend_from_slice(&64_u64.to_le_bytes());
    elf.extend_from_slice(&[0; 8]);
    elf.extend_from_slice(b"\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0");
    elf.extend_from_slice(b"\x01\0\0\0\x05\0\0\0");
    for word in [0, base, base, size, size, 4096] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    elf.extend_from_slice(&code);
    elf
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn system_call_of_32_bits_kills_the_process() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("exec ./call");
    let content = program_with_a_call_of_32_bits().into();
    spec.inputs = vec![InputFile { path: "call".into(), content, executable: true }];
    let ran = kit.run(spec).await;
    // SIGSYS by the filter, or SIGSEGV by a kernel that has no such calls.
    assert!(matches!(ran.end, End::Signalled { signal: 31 | 11 }), "{:?} {}", ran.end, ran.text());
    kit.remove(ran).await;
}
