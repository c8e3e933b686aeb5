//! Runs the process of a claimed job, from its files to its result.

use std::{sync::Arc, time::Duration};

use broker::Chain;
use edge::{JobEndpoint, Unrecorded};
use leased::{CallFailure, HeldLease};
use sandbox::{Limits, Network, Running, Spec, StartError, Stop};
use subjects::{
    Timestamp,
    job::{End, Engine, Job, JobResult, JobSpec, JobUsage, Repeat},
    streams,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    JobRunner,
    files::{FileError, Files},
    journal::JobJournal,
    logs::{LogWriter, WrittenLog},
    outputs::{NotStored, bound_problems},
    sandbox_name,
};
use crate::{crash_points::Point, presence::wait_for_drain};
use crash::reach;

/// How much output may wait to be stored, in pieces, before the job has to wait.
const OUTPUT_QUEUE: usize = 16;
/// How long a job may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// Open files of each process of a job.
const OPEN_FILES: u32 = 4096;

/// The outcome of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(Box<JobResult>),
    /// This node could not run it. Another one, or a later attempt, may.
    CannotRun(String),
    /// This node does not offer the engine any more; the job waits until it does.
    NotOffered,
    /// The node is drained, and the job was still running.
    Drained,
    /// The server does not confirm that this node has the job: it may give it to another.
    CutOff,
    /// Another node owns the job.
    Lost,
}

impl JobRunner {
    pub(super) async fn execute(
        &self,
        job: &Job,
        journal: &JobJournal,
        cancelled: &CancellationToken,
    ) -> Outcome {
        let ended = |end: End| Outcome::Ended(Box::new(journal.result(end)));
        let lease = match HeldLease::read(&job.lease) {
            Ok(lease) => Arc::new(lease),
            Err(error) => return ended(End::EngineFailed { why: format!("the job's lease: {error}") }),
        };
        // The gateway revokes the lease with the result: here, another attempt may be using it.
        tokio::select! {
            biased;
            outcome = self.run_leased(job, journal, &lease, cancelled) => outcome,
            () = wait_for_drain(self.drain_by.clone()) => Outcome::Drained,
            never = leased::keep_renewed(&self.gateway, &lease) => match never {},
        }
    }

    async fn run_leased(
        &self,
        job: &Job,
        journal: &JobJournal,
        lease: &Arc<HeldLease>,
        cancelled: &CancellationToken,
    ) -> Outcome {
        let began = Instant::now();
        let attempt = journal.attempt();
        let ended = |end: End| Outcome::Ended(Box::new(journal.result(end)));
        if let Some(why) = self.refuses(job) {
            return ended(End::EngineFailed { why });
        }
        let Some(engine) = self.engines.get(&job.spec.engine) else {
            return Outcome::NotOffered;
        };
        let files = Files { gateway: &self.gateway, lease, job, attempt, patience: self.patience };
        let inputs = tokio::select! {
            inputs = files.inputs() => inputs,
            () = cancelled.cancelled() => return ended(End::Cancelled),
        };
        let inputs = match inputs {
            Ok(inputs) => inputs,
            Err(FileError::Refused(why)) => return ended(End::EngineFailed { why }),
            Err(error) => return self.cannot_use_gateway(&error),
        };
        let mut spec = spec_of(job, attempt);
        spec.inputs = inputs;
        if let Err(error) = spec.check() {
            return ended(End::EngineFailed { why: error.to_string() });
        }
        let endpoint = match self.tools.serve(job, lease).await {
            Ok(endpoint) => endpoint,
            Err(error) if error.is_transient() => return Outcome::CannotRun(Chain(&error).to_string()),
            Err(edge::Error::Bind(CallFailure::Gateway(error @ mcp::Error::Unauthorized(_)))) => {
                return self.cannot_use_gateway(&FileError::Token(error.to_string()));
            }
            Err(error) => return ended(End::EngineFailed { why: Chain(&error).to_string() }),
        };
        if let Some(endpoint) = &endpoint {
            self.tools.add_to(&mut spec, endpoint);
        }
        // The journal itself reports a lost claim.
        if journal.record_start().await.is_err() {
            return Outcome::Lost;
        }
        reach(Point::BeforeProcess).await;
        let started_at = Timestamp::now();
        let (sender, output) = mpsc::channel(OUTPUT_QUEUE);
        let mut running = match engine.start(spec, sender).await {
            Ok(running) => running,
            Err(error) => return self.not_started(journal, &error),
        };
        self.metrics.start_seconds.observe(began.elapsed().as_secs_f64());
        info!(attempt, "Job started.");
        reach(Point::ProcessStarted).await;
        let log =
            LogWriter { streams: self.streams.clone(), job: job.job_id, node: self.node.clone(), attempt };
        let unrecorded = until_unrecorded(job, endpoint.as_ref());
        let (log, end) = tokio::join!(log.run(output), wait(&mut running, cancelled, unrecorded));
        reach(Point::ProcessEnded).await;
        let mut unrecorded = None;
        if let Some(endpoint) = endpoint {
            unrecorded = endpoint.unrecorded().filter(|found| may_run_elsewhere(&job.spec, found));
            endpoint.close().await;
        }
        let outcome = match (end, unrecorded) {
            (sandbox::End::EngineFailed { why }, _) => self.fail(why),
            // However it ended: it was refused a call that it should have got.
            (_, Some(Unrecorded { why, .. })) if !cancelled.is_cancelled() => {
                journal.take_back_start();
                Outcome::CannotRun(format!("cannot write the audit of what the job calls: {why}"))
            }
            (end, _) => {
                self.machine.record_success();
                let ran = Execution { started_at, end: end_of(end), log };
                self.finish_run(journal, files, &mut running, ran, cancelled).await
            }
        };
        running.remove().await;
        outcome
    }

    /// Stores what the job left, and makes its result.
    async fn finish_run(
        &self,
        journal: &JobJournal,
        files: Files<'_>,
        running: &mut Running,
        ran: Execution,
        cancelled: &CancellationToken,
    ) -> Outcome {
        let usage = running.usage();
        let mut result = journal.result(ran.end);
        result.started_at = Some(ran.started_at);
        result.log = ran.log.extent;
        result.usage =
            JobUsage { wall_ms: usage.wall_ms, cpu_ms: usage.cpu_ms, memory_peak_bytes: usage.memory_peak };
        self.metrics.log_bytes.inc_by(ran.log.extent.bytes);
        self.metrics.run_seconds.observe(Duration::from_millis(usage.wall_ms).as_secs_f64());
        result.problems = running.refused_connections();
        if ran.log.refused > 0 {
            result.problems.push(format!(
                "{} bytes of the log are not stored: {} takes no messages of that size",
                ran.log.refused,
                streams::JOB_LOGS
            ));
        }
        match self.store_outputs(&mut result, files, running, cancelled).await {
            Ok(()) => {}
            Err(NotStored::Cancelled) => cancel_late(&mut result),
            Err(NotStored::Failed(error)) => return self.cannot_use_gateway(&error),
        }
        result.problems = bound_problems(result.problems);
        reach(Point::FilesStored).await;
        Outcome::Ended(Box::new(result))
    }

    /// Says why the process was not started: because of the job, or because of this machine.
    fn not_started(&self, journal: &JobJournal, error: &StartError) -> Outcome {
        match error {
            StartError::Spec(_) | StartError::NoImage(_) => {
                Outcome::Ended(Box::new(journal.result(End::EngineFailed { why: error.to_string() })))
            }
            StartError::InUse(_) => Outcome::CannotRun(error.to_string()),
            StartError::Engine(_) => {
                // Other engines may have started it before they failed.
                if journal.engine() == Engine::Bwrap {
                    journal.take_back_start();
                }
                self.fail(error.to_string())
            }
        }
    }

    /// Hands a job back whose files this node cannot fetch or store.
    fn cannot_use_gateway(&self, error: &FileError) -> Outcome {
        self.note_refused_token(error);
        Outcome::CannotRun(error.to_string())
    }

    /// Takes no more jobs if the gateway refuses this node's token: none would get its files.
    pub(super) fn note_refused_token(&self, error: &FileError) {
        if let FileError::Token(_) = error {
            self.token.trip(&error.to_string());
        }
    }

    /// Records that a sandbox failed on this machine, not the job.
    fn fail(&self, why: String) -> Outcome {
        self.machine.record_failure(&format!("cannot run sandboxes: {why}"));
        Outcome::CannotRun(why)
    }

    /// Returns why this node must not run the job, whatever the gateway says.
    fn refuses(&self, job: &Job) -> Option<String> {
        let image = job.spec.image.as_deref()?;
        let is_allowed = self.images.iter().any(|allowed| allowed == digest_of(image));
        (!is_allowed).then(|| format!("image {image} is not in sandbox.images of node {}", self.node))
    }
}

/// How a process ran: when it was started, how it ended, and what it wrote.
struct Execution {
    started_at: Timestamp,
    end: End,
    log: WrittenLog,
}

/// Waits until the process has ended, and ends it when the job is cancelled, or is to run on another node.
async fn wait(
    running: &mut Running,
    cancelled: &CancellationToken,
    handed_over: impl Future<Output = ()>,
) -> sandbox::End {
    tokio::select! {
        biased;
        end = running.wait() => return end,
        () = cancelled.cancelled() => {}
        () = handed_over => {}
    }
    running.stop(Stop::Cancelled);
    running.wait().await
}

/// Waits until this node could not record a call of a job that may run on another node instead.
async fn until_unrecorded(job: &Job, endpoint: Option<&JobEndpoint>) {
    if let Some(endpoint) = endpoint {
        let found = endpoint.wait_for_unrecorded().await;
        if may_run_elsewhere(&job.spec, &found) {
            return;
        }
    }
    std::future::pending().await
}

/// Returns whether a job of which a call could not be recorded may be started again: it may be repeated, or
/// had no effect, since no call was made and it reaches nothing else.
fn may_run_elsewhere(spec: &JobSpec, found: &Unrecorded) -> bool {
    spec.repeat == Repeat::Safe || (!found.has_acted && spec.network.is_empty())
}

/// Ends a job as cancelled whose process has ended, and whose files are not all stored: all are kept or none,
/// and a node that takes the job over finds the request and ends it as cancelled, too.
fn cancel_late(result: &mut JobResult) {
    result.files.clear();
    let how = match std::mem::replace(&mut result.end, End::Cancelled) {
        End::Cancelled => return,
        End::Exited { code } => format!("with exit code {code}"),
        end => format!("as {}", end.kind()),
    };
    let why = format!("the process had ended {how}, and its files are not kept: the job was cancelled");
    // First, since a result names only so many.
    result.problems.insert(0, why);
}

fn spec_of(job: &Job, attempt: u32) -> Spec {
    let (spec, limits) = (&job.spec, &job.spec.limits);
    let network = if spec.network.is_empty() { Network::None } else { Network::Hosts(spec.network.clone()) };
    let mut made = Spec::new(sandbox_name(job.job_id, attempt), spec.command.iter().cloned());
    made.env = spec.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    made.image = spec.image.as_deref().map(|image| digest_of(image).to_owned());
    made.limits = Limits {
        cpu: f64::from(limits.cpu_milli) / 1000.0,
        memory: limits.memory_bytes(),
        pids: limits.pids,
        disk: limits.disk_bytes(),
        time: limits.time(),
        output: limits.output_bytes(),
        files: OPEN_FILES,
    };
    made.network = network;
    made.outputs.clone_from(&spec.outputs);
    made.term_grace = TERM_GRACE;
    made
}

/// Returns the digest of an image: `sha256:…` of `name@sha256:…`.
fn digest_of(image: &str) -> &str {
    image.split_once('@').map_or(image, |(_, digest)| digest)
}

fn end_of(end: sandbox::End) -> End {
    match end {
        sandbox::End::Exited { code } => End::Exited { code },
        sandbox::End::Signalled { signal } => End::Signalled { signal },
        sandbox::End::Oom => End::Oom,
        sandbox::End::Timeout => End::Timeout,
        sandbox::End::Output => End::Output,
        sandbox::End::Disk => End::Disk,
        sandbox::End::Cancelled => End::Cancelled,
        sandbox::End::EngineFailed { why } => End::EngineFailed { why },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_runs_elsewhere_only_if_no_effect_can_be_doubled() {
        let spec = |repeat: Repeat, network: &[&str]| {
            let limits = json!({
                "cpu_milli": 1, "memory_mb": 1, "pids": 1, "disk_mb": 1, "seconds": 1, "output_kb": 1,
            });
            let spec = json!({
                "command": ["true"], "engine": "bwrap", "limits": limits, "network": network,
                "tools": ["files.read"], "repeat": repeat,
            });
            serde_json::from_value::<JobSpec>(spec).unwrap()
        };
        let found = |has_acted| Unrecorded { why: "the disk is full".to_owned(), has_acted };
        for (repeat, network, has_acted, expected) in [
            (Repeat::Never, &[][..], false, true),
            (Repeat::Never, &[], true, false),
            (Repeat::Never, &["example.org"], false, false),
            (Repeat::Never, &["example.org"], true, false),
            (Repeat::Safe, &[], true, true),
            (Repeat::Safe, &["example.org"], true, true),
        ] {
            let may = may_run_elsewhere(&spec(repeat, network), &found(has_acted));
            assert_eq!(may, expected, "{repeat:?} {network:?} {has_acted}");
        }
    }
}
