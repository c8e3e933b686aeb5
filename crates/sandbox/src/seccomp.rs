//! The system calls that a job may not make, as a filter for the kernel.
//!
//! A call that is not named here is allowed if the kernel that this was written for has it. Newer ones answer
//! ENOSYS, as on an old kernel, and so does `clone3`, whose flags a filter cannot see: libraries then use
//! `clone`.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde_json::{Value, json};

/// The last call that is known to be harmless, or denied below: `lsm_list_modules`.
const LAST_KNOWN_CALL: u32 = 461;

// Of linux/filter.h: load a word, jump if equal or greater, return.
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;
/// One more than the last family of sockets that a kernel has.
const LAST_FAMILY: u32 = 64;
/// From linux/net.h; obsolete.
const SOCK_PACKET: libc::c_int = 10;
const RETURN_ERRNO: u32 = 0x0005_0000;

/// Lists calls with their names.
macro_rules! calls {
    ($($call:ident),* $(,)?) => { &[$((stringify!($call), libc::$call)),*] };
}

/// Calls that are always denied.
const DENIED: &[(&str, c_long)] = calls![
    // Other processes.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_kcmp,
    // Mounts and namespaces.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    // Parts of the kernel with a history.
    SYS_bpf,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_fanotify_init,
    SYS_quotactl,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_memfd_secret,
    // The machine.
    SYS_acct,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_clock_settime,
    SYS_settimeofday,
    SYS_delete_module,
    SYS_finit_module,
    SYS_init_module,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_reboot,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[(&str, c_long)] = calls![
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_uselib,
    SYS_ustat,
    SYS__sysctl,
    SYS_nfsservctl,
    SYS_lookup_dcookie,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[(&str, c_long)] = &[];

const NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];

/// Builds the filter as the bytes that the kernel loads.
pub(crate) fn filter() -> Result<Vec<u8>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (_, call) in DENIED.iter().chain(DENIED_HERE) {
        rules.insert(*call, Vec::new());
    }
    let flags = NAMESPACES.map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        all([(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, flags.into_iter().collect::<Result<_, _>>()?);
    rules.insert(
        libc::SYS_ioctl,
        vec![
            // Types into the terminal of another program.
            all([(1, SeccompCmpOp::Eq, 0x5412)])?,
            all([(1, SeccompCmpOp::Eq, 0x541c)])?,
        ],
    );
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(|it| u64::from(it.unsigned_abs()));
    let no_family = families.map(|family| (0, SeccompCmpOp::Ne, family));
    let raw = |kind: libc::c_int| all([(1, SeccompCmpOp::MaskedEq(0xf), u64::from(kind.unsigned_abs()))]);
    rules.insert(libc::SYS_socket, vec![all(no_family)?, raw(libc::SOCK_RAW)?, raw(SOCK_PACKET)?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?.try_into()?;
    let bytes = |it: &sock_filter| {
        let [code, k] = [u64::from(it.code), u64::from(it.k)];
        (code | u64::from(it.jt) << 16 | u64::from(it.jf) << 24 | k << 32).to_ne_bytes()
    };
    Ok(unknown_calls().iter().chain(&program).flat_map(bytes).collect())
}

/// Returns the same filter as the runtime specification of OCI describes one. Unknown calls are left to the
/// engine.
pub(crate) fn oci() -> Value {
    let names = DENIED.iter().chain(DENIED_HERE).map(|(name, _)| name.trim_start_matches("SYS_"));
    let deny = |names: Vec<&str>, errno: libc::c_int, arguments: Value| {
        let action = "SCMP_ACT_ERRNO";
        json!({ "names": names, "action": action, "errnoRet": errno, "args": arguments })
    };
    let equal = |index: u32, value: u32| json!([{ "index": index, "value": value, "op": "SCMP_CMP_EQ" }]);
    let masked = |index: u32, mask: u32, value: u32| {
        let operator = "SCMP_CMP_MASKED_EQ";
        json!([{ "index": index, "value": mask, "valueTwo": value, "op": operator }])
    };
    let mut rules =
        vec![deny(names.collect(), libc::EPERM, json!([])), deny(vec!["clone3"], libc::ENOSYS, json!([]))];
    let flags = NAMESPACES.map(libc::c_int::unsigned_abs);
    rules.extend(flags.map(|flag| deny(vec!["clone"], libc::EPERM, masked(0, flag, flag))));
    rules.extend(
        [0x5412, 0x541c].map(|command| deny(vec!["ioctl"], libc::EPERM, masked(1, u32::MAX, command))),
    );
    let allowed = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(libc::c_int::unsigned_abs);
    let families = (0..LAST_FAMILY).filter(|family| !allowed.contains(family));
    rules.extend(families.map(|family| deny(vec!["socket"], libc::EPERM, equal(0, family))));
    let raw = [libc::SOCK_RAW, SOCK_PACKET].map(libc::c_int::unsigned_abs);
    rules.extend(raw.map(|kind| deny(vec!["socket"], libc::EPERM, masked(1, 0xf, kind))));
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules })
}

/// Returns a rule that matches if all conditions on arguments hold, of which the kernel reads the lower half.
fn all<const N: usize>(
    conditions: [(u8, SeccompCmpOp, u64); N],
) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions =
        conditions.map(|(argument, operator, value)| SeccompCondition::new(argument, Dword, operator, value));
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

/// Answers ENOSYS to `clone3`, to calls that are not known, and to those of the x32 ABI, whose numbers are
/// larger.
fn unknown_calls() -> [sock_filter; 4] {
    let no_such_call = RETURN_ERRNO | libc::ENOSYS.unsigned_abs();
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    [
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_EQUAL, jt: 1, jf: 0, k: clone3 },
        sock_filter { code: JUMP_GREATER, jt: 0, jf: 1, k: LAST_KNOWN_CALL },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: no_such_call },
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn filter_fits_into_one_write_to_a_pipe() {
        let filter = super::filter().unwrap();
        assert!(filter.len().is_multiple_of(8) && filter.len() < 64 * 1024, "{}", filter.len());
    }
}
