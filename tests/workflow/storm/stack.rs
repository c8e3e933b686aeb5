//! What fails: three runners, two managers, an analyst, two nodes, NATS and the gateway.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng, rngs::StdRng};
use testkit::{NodeBuilder, NodeProcess, Process, RunnerBuilder, RunnerProcess, Worker, WorkerBuilder};
use tokio::time::{Instant, sleep};

use crate::stage::Stage;

const RUNNERS: usize = 3;
const MANAGERS: usize = 2;
const ANALYSTS: usize = 1;
const NODES: usize = 2;

/// A process of the stack that can be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Runner(usize),
    Worker(usize),
    Node(usize),
    Nats,
    Gateway,
}

pub(super) struct Stack {
    pub(super) stage: Stage,
    /// How often what was done to whom.
    pub(super) failures: BTreeMap<&'static str, u32>,
    runners: Vec<(RunnerBuilder, RunnerProcess)>,
    workers: Vec<(WorkerBuilder, Worker)>,
    nodes: Vec<(NodeBuilder, NodeProcess)>,
    /// Frozen processes, and until when.
    frozen: Vec<(Victim, Instant)>,
}

impl Stack {
    pub(super) async fn start() -> Self {
        let stage = Stage::start().await;
        let (mut runners, mut workers, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        // Far more than the kills that one handoff can meet.
        let patient = |worker: WorkerBuilder| worker.set("worker.max_attempts", "50");
        let manager = patient(stage.manager_worker().await).set("worker.concurrency.review", "16");
        let analyst = patient(stage.analyst_worker().await);
        for number in 0..MANAGERS + ANALYSTS {
            let builder = if number < MANAGERS { &manager } else { &analyst };
            workers.push((builder.clone(), builder.start().await));
        }
        for number in 0..NODES {
            let builder = stage.node(&format!("node-{number}")).await;
            let process = builder.spawn();
            nodes.push((builder, process));
        }
        for number in 0..RUNNERS {
            let builder = stage.runner(&format!("runner-{number}")).await;
            let process = builder.spawn();
            runners.push((builder, process));
        }
        for (_, node) in &mut nodes {
            node.wait_until_ready().await;
        }
        for (_, runner) in &mut runners {
            runner.wait_until_ready().await;
        }
        let (failures, frozen) = (BTreeMap::new(), Vec::new());
        Self { stage, failures, runners, workers, nodes, frozen }
    }

    /// Does one thing that goes wrong in practice, after a moment.
    pub(super) async fn fail(&mut self, rng: &mut StdRng) {
        sleep(Duration::from_millis(rng.random_range(200..1_400))).await;
        self.thaw(Instant::now());
        self.restart_ended();
        let victim = match rng.random_range(0..20) {
            0..=7 => Victim::Runner(rng.random_range(0..RUNNERS)),
            8..=12 => Victim::Worker(rng.random_range(0..MANAGERS + ANALYSTS)),
            13..=16 => Victim::Node(rng.random_range(0..NODES)),
            17 | 18 => Victim::Gateway,
            _ => Victim::Nats,
        };
        if rng.random_range(0..5) < 3 {
            self.kill(victim, rng).await;
        } else if self.frozen.iter().all(|(known, _)| *known != victim) {
            self.freeze(victim, rng);
        }
    }

    async fn kill(&mut self, victim: Victim, rng: &mut StdRng) {
        self.frozen.retain(|(known, _)| *known != victim);
        let what = match victim {
            Victim::Runner(at) => {
                let (builder, runner) = &mut self.runners[at];
                runner.process.kill();
                *runner = builder.spawn();
                "runner killed"
            }
            Victim::Worker(at) => {
                let (builder, worker) = &mut self.workers[at];
                worker.process.kill();
                *worker = builder.spawn();
                "worker killed"
            }
            Victim::Node(at) => {
                let (builder, node) = &mut self.nodes[at];
                node.process.kill();
                *node = builder.spawn();
                "node killed"
            }
            Victim::Nats => {
                self.stage.nats.kill();
                sleep(Duration::from_millis(rng.random_range(0..1_500))).await;
                self.stage.nats.start_again();
                "NATS killed"
            }
            Victim::Gateway => {
                // It starts only if NATS answers.
                self.stage.nats.process().thaw();
                self.frozen.retain(|(known, _)| *known != Victim::Nats);
                self.stage.gateway.kill();
                sleep(Duration::from_millis(rng.random_range(0..1_500))).await;
                self.stage.gateway.start_again().await;
                "gateway killed"
            }
        };
        *self.failures.entry(what).or_default() += 1;
    }

    fn freeze(&mut self, victim: Victim, rng: &mut StdRng) {
        let (longest, what) = match victim {
            // Some come back in time, some after another has their work.
            Victim::Runner(_) => (9_000, "runner frozen"),
            Victim::Worker(_) => (9_000, "worker frozen"),
            Victim::Node(_) => (6_000, "node frozen"),
            Victim::Nats => (3_000, "NATS frozen"),
            Victim::Gateway => (3_000, "gateway frozen"),
        };
        self.process(victim).freeze();
        let time = Duration::from_millis(rng.random_range(300..longest));
        self.frozen.push((victim, Instant::now() + time));
        *self.failures.entry(what).or_default() += 1;
    }

    fn process(&self, victim: Victim) -> &Process {
        match victim {
            Victim::Runner(at) => &self.runners[at].1.process,
            Victim::Worker(at) => &self.workers[at].1.process,
            Victim::Node(at) => &self.nodes[at].1.process,
            Victim::Nats => self.stage.nats.process(),
            Victim::Gateway => &self.stage.gateway.process,
        }
    }

    fn thaw(&mut self, now: Instant) {
        let (over, frozen): (Vec<_>, Vec<_>) = self.frozen.drain(..).partition(|(_, until)| *until < now);
        self.frozen = frozen;
        for (victim, _) in over {
            self.process(victim).thaw();
        }
    }

    /// Starts again what ended by itself, as a supervisor does: a process that finds no server may end.
    pub(super) fn restart_ended(&mut self) {
        for (builder, runner) in &mut self.runners {
            if !runner.process.is_running() {
                *runner = builder.spawn();
            }
        }
        for (builder, worker) in &mut self.workers {
            if !worker.process.is_running() {
                *worker = builder.spawn();
            }
        }
        for (builder, node) in &mut self.nodes {
            if !node.process.is_running() {
                *node = builder.spawn();
            }
        }
    }

    /// Ends all failures.
    pub(super) fn mend(&mut self) {
        self.thaw(Instant::now() + Duration::from_secs(3_600));
    }

    /// Returns the end of each log, for a storm that does not settle.
    pub(super) fn logs(&self) -> String {
        let runners = self.runners.iter().map(|(_, runner)| runner.log());
        let workers = self.workers.iter().map(|(_, worker)| worker.log());
        let nodes = self.nodes.iter().map(|(_, node)| node.log());
        let logs = runners.chain(workers).chain(nodes).chain([self.stage.gateway.log()]);
        let last = |log: String| {
            let lines: Vec<&str> = log.lines().rev().take(15).collect();
            lines.into_iter().rev().map(|line| format!("{line}\n")).collect::<String>()
        };
        logs.map(last).collect::<Vec<_>>().join("\n")
    }
}
