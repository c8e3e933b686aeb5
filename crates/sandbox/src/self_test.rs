//! Tries to break out of a sandbox, and to exceed its limits, before its engine is offered.

mod attempts;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet};

use self::attempts::{BEGAN, ESCAPED, Expect, PROGRAMS, SCRIPTS, Script, UNTRIED};
use crate::{
    engine::{Engine, EngineKind},
    spec::{End, Limits, Spec},
};

/// The results of all attempts.
#[derive(Clone, Debug, Default)]
pub struct SelfTest {
    /// In the order of their names.
    pub attempts: Vec<Attempt>,
}

/// One attempt to escape from a sandbox, or to exceed a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub name: &'static str,
    pub outcome: Outcome,
    /// How the job ended and the end of what it printed; or why it could not be tried, and what to do.
    pub detail: String,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The sandbox contained the attempt.
    Held,
    /// The attempt got out, or over a limit.
    Escaped,
    /// Nothing: the attempt could not be made.
    Untried,
}

impl SelfTest {
    /// Returns whether the engine may be offered: every attempt was made and contained.
    pub fn has_held(&self) -> bool {
        !self.attempts.is_empty() && self.attempts.iter().all(|it| it.outcome == Outcome::Held)
    }
}

/// How much of what an attempt printed is shown, in bytes.
const SHOWN_BYTES: usize = 200;
/// Paths of the machine that no job without an image may see.
const HIDDEN: [&str; 3] = ["/etc/shadow", "/home", "/root"];

/// Distinguishes the jobs of several tests in one process.
static RUN: AtomicU64 = AtomicU64::new(0);

/// Makes all attempts. An engine that does not contain every one must not be offered.
///
/// With `bwrap` and `oci` they run on the programs of the machine: an image may have none of those that they
/// need, and what isolates a job does not come from its image.
pub async fn self_test(engine: &Arc<Engine>) -> SelfTest {
    let run = RUN.fetch_add(1, Ordering::Relaxed);
    let mut attempts = JoinSet::new();
    for (number, script) in SCRIPTS.iter().enumerate() {
        attempts.spawn(attempt(engine.clone(), format!("self-test-{run}-{number}"), *script));
    }
    let mut attempts = attempts.join_all().await;
    attempts.sort_by_key(|it| it.name);
    SelfTest { attempts }
}

async fn attempt(engine: Arc<Engine>, id: String, script: Script) -> Attempt {
    let Script { name, expect, .. } = script;
    let command = ["sh", "-c", &script.text(), "sh"].map(str::to_owned);
    let mut spec = Spec::new(id, command.into_iter().chain(forbidden(&engine)));
    spec.image = engine.image_for_attempts();
    spec.limits = Limits {
        cpu: 1.0,
        memory: 48 << 20,
        pids: 16,
        disk: 4 << 20,
        time: match expect {
            Expect::Timeout => Duration::from_millis(300),
            // A shell may try for 15 seconds to start a process that its limit does not allow.
            Expect::Success | Expect::Oom | Expect::Output => Duration::from_secs(30),
        },
        output: 64 * 1024,
        files: 64,
    };
    spec.term_grace = Duration::from_millis(200);
    let (sink, mut output) = mpsc::channel(4);
    let mut running = match engine.start_attempt(spec, sink).await {
        Ok(running) => running,
        Err(error) => {
            let detail = format!("{error}; {}", remedy(&engine));
            return Attempt { name, outcome: Outcome::Untried, detail };
        }
    };
    let mut printed = Vec::new();
    while let Some(chunk) = output.recv().await {
        printed.extend_from_slice(&chunk);
    }
    let end = running.wait().await;
    running.remove().await;
    let printed = String::from_utf8_lossy(&printed);
    let (outcome, detail) = judge(expect, &end, &printed);
    let detail = match outcome {
        Outcome::Held | Outcome::Escaped => detail,
        Outcome::Untried => format!("{detail}; {}", remedy(&engine)),
    };
    Attempt { name, outcome, detail }
}

/// Says what the end of an attempt shows. Only what a script says itself, or a limit that it exceeds for as
/// long as it runs, is an escape.
fn judge(expect: Expect, end: &End, printed: &str) -> (Outcome, String) {
    let said = printed.strip_prefix(BEGAN).and_then(|rest| rest.strip_prefix('\n'));
    let last = end_of(said.unwrap_or(printed));
    let shown = format!("{end:?} {last}").trim_end().to_owned();
    let is_held = match expect {
        Expect::Success => said.is_some() && *end == End::Exited { code: 0 },
        Expect::Oom => *end == End::Oom,
        Expect::Timeout => *end == End::Timeout,
        Expect::Output => *end == End::Output,
    };
    match (end, said) {
        _ if is_held => (Outcome::Held, shown),
        (_, None) => (Outcome::Untried, format!("`sh` does not run: {shown}")),
        (End::Exited { code: ESCAPED }, _) => (Outcome::Escaped, shown),
        (End::Exited { code: UNTRIED }, _) => {
            (Outcome::Untried, last.lines().last().unwrap_or_default().to_owned())
        }
        (End::Timeout, _) if expect == Expect::Output => (Outcome::Escaped, shown),
        _ => (Outcome::Untried, format!("the attempt did not finish: {shown}")),
    }
}

fn end_of(text: &str) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(SHOWN_BYTES))..).unwrap_or_default().trim()
}

/// Returns the node's folder, which no job may list, and what no job may see at all.
fn forbidden(engine: &Engine) -> Vec<String> {
    let settings = &engine.host().settings;
    let is_shown = |path: &Path| {
        settings.read_only.iter().any(|shown| path.starts_with(shown) || shown.starts_with(path))
    };
    // An image may have its own of these.
    let of_machine = HIDDEN.map(Path::new).into_iter().filter(|_| engine.image_for_attempts().is_none());
    let jobs = settings.data.join("jobs");
    let hidden = of_machine.chain([jobs.as_path()]).filter(|path| !is_shown(path));
    [settings.data.as_path()].into_iter().chain(hidden).map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Says what has to be there for the attempts to be made.
fn remedy(engine: &Engine) -> String {
    match engine.kind() {
        EngineKind::Bwrap | EngineKind::Oci => format!(
            "the attempts need {PROGRAMS} of this machine: install them below the folders of \
             `sandbox.read_only`"
        ),
        EngineKind::Container | EngineKind::Kubernetes => {
            format!("the attempts need {PROGRAMS} of the image: take one that has them")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_got_out_is_an_escape() {
        let exited = |code| End::Exited { code };
        for (expect, end, printed, outcome) in [
            (Expect::Success, exited(0), "began\n", Outcome::Held),
            (Expect::Success, exited(0), "", Outcome::Untried),
            (Expect::Success, exited(99), "began\n", Outcome::Escaped),
            (Expect::Success, exited(127), "began\nsh: 1: x: not found\n", Outcome::Untried),
            (Expect::Success, exited(1), "bwrap: execvp sh: No such file or directory", Outcome::Untried),
            (Expect::Success, End::Oom, "began\n", Outcome::Untried),
            (Expect::Oom, End::Oom, "began\n", Outcome::Held),
            (Expect::Oom, exited(99), "began\n", Outcome::Escaped),
            (Expect::Oom, End::Timeout, "began\n", Outcome::Untried),
            (Expect::Timeout, End::Timeout, "", Outcome::Held),
            (Expect::Timeout, exited(2), "began\n", Outcome::Untried),
            (Expect::Output, End::Output, "began\nxxx", Outcome::Held),
            (Expect::Output, End::Timeout, "began\nxxx", Outcome::Escaped),
        ] {
            assert_eq!(judge(expect, &end, printed).0, outcome, "{expect:?} {end:?} {printed:?}");
        }
    }

    #[test]
    fn missing_program_is_named() {
        let printed = "began\nnoise\nthe program `mount` is missing\n";
        let (outcome, why) = judge(Expect::Success, &End::Exited { code: 98 }, printed);
        assert_eq!((outcome, why.as_str()), (Outcome::Untried, "the program `mount` is missing"));
        let printed = "bwrap: execvp sh: No such file or directory\n";
        let (_, why) = judge(Expect::Success, &End::Exited { code: 1 }, printed);
        assert!(why.starts_with("`sh` does not run: ") && why.contains("execvp sh"), "{why}");
    }
}
