//! The attempts to escape, as shell scripts.
//!
//! They use what a shell has built in, and `mount`: an attempt without its program would look like one that
//! the sandbox held. Nor is a failed redirection to `/dev/null` to be taken for a refusal, so errors are
//! printed.

/// The expected result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// The script exits with 0: it checks the result itself.
    Success,
    Oom,
    Timeout,
    Output,
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) expect: Expect,
    text: &'static str,
}

impl Script {
    /// Returns the whole script. Its arguments are the node's folder, and paths that it must not see.
    pub(super) fn text(&self) -> String {
        format!("{PRELUDE}{}", self.text)
    }
}

/// Printed first by every script, to show that the shell runs.
pub(super) const BEGAN: &str = "began";
/// The exit code of a script that got out.
pub(super) const ESCAPED: i32 = 99;
/// The exit code of a script that could not try. Its last line says why.
pub(super) const UNTRIED: i32 = 98;
/// The programs that scripts need.
pub(super) const PROGRAMS: &str = "`sh` and `mount`";

const PRELUDE: &str = r#"echo began
escaped() { exit 99; }
untried() { echo "$1"; exit 98; }
need() { command -v "$1" >/dev/null || untried "the program \`$1\` is missing"; }
"#;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "descriptors are not inherited",
        expect: Expect::Success,
        text: r#"set -- /proc/self/fd/*; [ -h "$1" ] || untried "there is no /proc"
            [ $# -le 4 ] || escaped; exit 0"#,
    },
    Script {
        name: "devices and root are read-only",
        expect: Expect::Success,
        text: "for d in / /dev /etc /usr; do (echo >$d/x) && escaped; done; exit 0",
    },
    Script {
        name: "disk is limited",
        expect: Expect::Success,
        text: r#"x=0123456789abcdef; while [ ${#x} -lt 65536 ]; do x=$x$x; done
            for d in /work /tmp /dev/shm; do
              (: >$d/x) || untried "$d cannot be written to"
              i=0; while [ $i -lt 144 ]; do echo "$x" || break; i=$((i + 1)); done >$d/x
              [ $i -lt 144 ] || escaped
            done; exit 0"#,
    },
    Script {
        name: "environment is not the node's",
        expect: Expect::Success,
        text: r#"case $(export -p) in *CYNODE*|*NATS*) escaped;; esac
            while read -r line || [ "$line" ]; do case $line in *CYNODE*|*NATS*) escaped;; esac
            done </proc/1/environ
            [ "$HOME" = /work ] || escaped; exit 0"#,
    },
    Script {
        name: "files of the host are not visible",
        expect: Expect::Success,
        text: r#"for f in "$1"/*; do [ -e "$f" ] && escaped; done; shift
            for f; do [ -e "$f" ] && escaped; done; exit 0"#,
    },
    Script {
        name: "memory is limited",
        expect: Expect::Oom,
        text: "x=0123456789abcdef; while [ ${#x} -lt 268435456 ]; do x=$x$x; done; escaped",
    },
    Script {
        name: "mounts are denied",
        expect: Expect::Success,
        text: "need mount; mount -t tmpfs x /tmp && escaped; exit 0",
    },
    Script {
        name: "network has no way out",
        expect: Expect::Success,
        text: r#"seen=; while read -r name rest; do case $name in lo:*) seen=1;; *:*) escaped;; esac
            done </proc/net/dev
            [ "$seen" ] || untried "there is no /proc/net/dev with a loopback interface"; exit 0"#,
    },
    Script {
        name: "other processes are not visible",
        expect: Expect::Success,
        text: r#"set -- /proc/[0-9]*; [ -d "$1" ] || untried "there is no /proc"
            [ $# -le 4 ] || escaped; exit 0"#,
    },
    Script {
        name: "output is limited",
        expect: Expect::Output,
        text: "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    },
    Script {
        name: "privileges cannot be gained",
        expect: Expect::Success,
        text: r#"n=0; while read -r key value rest; do
              case $key in
                CapPrm:|CapEff:|CapBnd:) n=$((n + 1)); case $value in *[!0]*) escaped;; esac;;
                NoNewPrivs:) n=$((n + 1)); [ "$value" = 1 ] || escaped;;
              esac
            done </proc/self/status
            [ $n -eq 4 ] || untried "/proc/self/status does not tell the privileges"; exit 0"#,
    },
    // Each process waits for the one that it starts.
    Script {
        name: "processes are limited",
        expect: Expect::Success,
        text: r#"deeper() { [ "$1" -lt 100 ] || exit 99; (deeper $(($1 + 1))); return $?; }
            (deeper 0); code=$?; [ $code -ne 99 ] || escaped
            [ $code -ne 0 ] || untried "the shell starts no processes"; exit 0"#,
    },
    Script {
        name: "system calls are filtered",
        expect: Expect::Success,
        text: r#"while read -r key value rest; do
              [ "$key" != Seccomp: ] || { [ "$value" = 2 ] || escaped; exit 0; }
            done </proc/self/status
            untried "/proc/self/status does not tell the filter""#,
    },
    Script {
        name: "time is limited",
        expect: Expect::Timeout,
        text: "trap '' TERM; (while :; do :; done) & kill -STOP $$; while :; do :; done",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_first_line_of_the_scripts_are_those_that_are_read() {
        assert!(PRELUDE.starts_with(&format!("echo {BEGAN}\n")));
        for code in [format!("escaped() {{ exit {ESCAPED}; }}"), format!("exit {UNTRIED}; }}")] {
            assert!(PRELUDE.contains(&code), "{code}");
        }
        assert!(SCRIPTS.is_sorted_by_key(|script| script.name));
    }
}
