//! Opens the engines of a node and tries to escape from each. One that is missing or fails the test is not
//! offered: there is no way to run a job without a sandbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sandbox::{Engine as SandboxEngine, EngineKind, Host, Outcome};
use subjects::{
    job::Engine,
    node::{EngineStatus, EscapeAttempt},
};
use tracing::{info, warn};

/// The engines that are offered, and what is known about all that were asked for.
#[derive(Debug)]
pub(crate) struct Engines {
    pub(crate) offered: BTreeMap<Engine, Arc<SandboxEngine>>,
    pub(crate) status: Vec<EngineStatus>,
}

impl Engines {
    pub(crate) async fn open(host: &Arc<Host>, wanted: &[Engine]) -> Self {
        let mut engines = Self { offered: BTreeMap::new(), status: Vec::new() };
        for engine in wanted {
            let (opened, status) = open(host, *engine).await;
            if let Some(opened) = opened {
                let attempts = status.attempts.len();
                info!(%engine, attempts, "Engine offered: it contained every escape attempt.");
                engines.offered.insert(*engine, opened);
            } else {
                warn!(%engine, why = status.notes.join("; "), "Engine not offered.");
            }
            engines.status.push(status);
        }
        engines
    }
}

async fn open(host: &Arc<Host>, engine: Engine) -> (Option<Arc<SandboxEngine>>, EngineStatus) {
    let mut status = EngineStatus { engine, offered: false, notes: Vec::new(), attempts: Vec::new() };
    let opened = match sandbox::open(host, kind(engine)).await {
        Ok(opened) => opened,
        Err(unavailable) => {
            status.notes.push(unavailable.to_string());
            return (None, status);
        }
    };
    let tested = sandbox::self_test(&opened).await;
    status.attempts = tested
        .attempts
        .into_iter()
        .map(|attempt| EscapeAttempt {
            name: attempt.name.to_owned(),
            held: attempt.outcome == Outcome::Held,
            untried: attempt.outcome == Outcome::Untried,
            // What was held needs no detail.
            detail: (attempt.outcome != Outcome::Held).then_some(attempt.detail),
        })
        .collect();
    status.offered = !status.attempts.is_empty() && status.attempts.iter().all(|attempt| attempt.held);
    status.notes = failures(&status.attempts);
    (status.offered.then_some(opened), status)
}

/// Says why an engine is not offered: what escaped, and what could not be tried.
fn failures(attempts: &[EscapeAttempt]) -> Vec<String> {
    let of = |untried: bool| attempts.iter().filter(move |it| !it.held && it.untried == untried);
    let mut notes = Vec::new();
    let escaped: Vec<&str> = of(false).map(|attempt| attempt.name.as_str()).collect();
    if !escaped.is_empty() {
        notes.push(format!("its self-test failed: {}", escaped.join(", ")));
    }
    let untried: Vec<&str> = of(true).map(|attempt| attempt.name.as_str()).collect();
    if !untried.is_empty() {
        // A program that is missing is the reason of all that need it.
        let reasons: BTreeSet<&str> = of(true).filter_map(|attempt| attempt.detail.as_deref()).collect();
        notes.push(format!(
            "its self-test could not be tried: {}: {}",
            untried.join(", "),
            reasons.into_iter().collect::<Vec<_>>().join("; ")
        ));
    }
    notes
}

fn kind(engine: Engine) -> EngineKind {
    match engine {
        Engine::Bwrap => EngineKind::Bwrap,
        Engine::Oci => EngineKind::Oci,
        Engine::Container => EngineKind::Container,
        Engine::Kubernetes => EngineKind::Kubernetes,
    }
}
