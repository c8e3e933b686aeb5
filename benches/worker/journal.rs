//! The cost of the journal: one step, on one server and on three, and resuming from a long journal.

use cynode_pma::measure::Journals;
use testkit::{Cluster, Goal, Nats, Report, Worker};

const STEPS: usize = 2_000;
const LENGTHS: [(usize, Option<Goal>); 3] = [(10, None), (100, None), (1_000, Some(Goal::AtMost(50.0)))];
const RESUMES: usize = 11;

pub(crate) async fn measure(report: &mut Report) {
    println!("journal: {STEPS} steps of 1 KiB, one after the other");
    let nats = Nats::start();
    drop(Worker::manager(&nats).start().await);
    let single = Journals::connect(&nats.url()).await.expect("the streams are there");
    steps(report, &single, "one server").await;
    for (length, goal) in LENGTHS {
        let (id, _) = single.write(length).await.expect("a journal");
        let mut times = Vec::new();
        for _ in 0..RESUMES {
            times.push(single.resume(id).await.expect("it is ours"));
        }
        report.add(&format!("resume, {length} records"), "ms", times, goal);
    }
    let cluster = Cluster::start().await;
    drop(Worker::manager_at(&cluster.url()).set("nats.replicas", "3").start().await);
    let three = Journals::connect(&cluster.url()).await.expect("the streams are there");
    steps(report, &three, "three servers").await;
}

async fn steps(report: &mut Report, journals: &Journals, on: &str) {
    let (_, mut times) = journals.write(STEPS).await.expect("a journal");
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    report.add(&format!("journal step, {on}, p50"), "ms", vec![at(0.50)], None);
    report.add(&format!("journal step, {on}, p99"), "ms", vec![at(0.99)], None);
}
