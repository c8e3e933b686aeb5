//! What nodes write to the chain of a job becomes its row, once and in order.

use control::NotApplied;
use sea_orm::EntityTrait;
use serde_json::{Value, json};
use store::entity::{job as row, job_file, lease};
use subjects::{
    JobId, NodeId, Subject,
    job::{Claimed, End, Engine, Entry, JobResult, JobUsage, LogExtent, Record, StoredFile, VERSION},
};

use super::{
    files::{digest, node_of, piece},
    id_of, job,
};
use crate::stage::{Stage, on_both};

on_both![
    row_follows_the_chain,
    late_and_repeated_messages_change_nothing,
    files_of_the_result_become_artifacts,
    file_that_is_not_stored_is_a_problem_and_not_a_failure,
    unreadable_messages_are_refused_for_good,
];

pub(super) struct Chain<'s> {
    pub(super) stage: &'s Stage,
    pub(super) job: JobId,
}

impl<'s> Chain<'s> {
    fn of(stage: &'s Stage, job: &Value) -> Self {
        Self { stage, job: id_of(job).parse().unwrap() }
    }

    async fn apply(&self, subject: Subject, sequence: u64, body: &[u8]) -> Result<bool, NotApplied> {
        let Stage { store, leases, sandboxes, .. } = self.stage;
        sandboxes.apply(store, leases, &subject.to_string(), sequence, body).await
    }

    async fn record(&self, node: &str, sequence: u64, record: Record) -> bool {
        let subject = Subject::JobJournal(self.job, node.parse().unwrap());
        self.apply(subject, sequence, &Entry::new(record).encode()).await.unwrap()
    }

    async fn claim(&self, node: &str, sequence: u64, attempt: u32) -> bool {
        let claimed = Claimed {
            attempt,
            node: node.parse().unwrap(),
            instance: "i-1".parse().unwrap(),
            engine: Engine::Bwrap,
            queued: 1,
            delivery: 1,
        };
        self.record(node, sequence, Record::Claimed(claimed)).await
    }

    async fn end(&self, node: &str, sequence: u64, result: JobResult) -> bool {
        let subject = Subject::JobResult(self.job, node.parse().unwrap());
        self.apply(subject, sequence, &result.encode()).await.unwrap()
    }

    fn result(&self, attempt: u32, end: End) -> JobResult {
        JobResult {
            v: VERSION,
            job_id: self.job,
            node: Some("one".parse().unwrap()),
            engine: Some(Engine::Bwrap),
            attempt,
            end,
            started_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            ended_at: "2026-01-01T00:00:05Z".parse().unwrap(),
            usage: JobUsage { wall_ms: 5_000, cpu_ms: 10, memory_peak_bytes: 1 << 20 },
            log: LogExtent::default(),
            files: Vec::new(),
            problems: Vec::new(),
        }
    }

    async fn get(&self) -> Value {
        self.stage.ok("sandbox.job.get", json!({ "job_id": self.job })).await
    }
}

async fn row_follows_the_chain(stage: Stage) {
    let job = job(&stage).await;
    let chain = Chain::of(&stage, &job);
    assert!(chain.claim("one", 10, 1).await);
    let running = chain.get().await;
    assert_eq!((&running["status"], &running["node_id"]), (&json!("running"), &json!("one")));
    assert!(running["waiting_because"].as_str().unwrap().contains("has stopped reporting"), "{running}");
    assert!(chain.record("one", 11, Record::Started).await);
    assert!(chain.get().await["started_at"].is_string());
    assert!(chain.record("one", 12, Record::Released { why: None }).await);
    let queued = chain.get().await;
    assert_eq!((&queued["status"], queued.get("node_id")), (&json!("queued"), None));
    assert!(chain.claim("two", 13, 2).await);
    assert!(!chain.record("two", 14, Record::Still).await);
    assert!(chain.end("two", 15, chain.result(2, End::Exited { code: 3 })).await);
    let ended = chain.get().await;
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("failed"), &json!(3)));
    assert_eq!((&ended["node_id"], &ended["attempt"]), (&json!("two"), &json!(2)));
    assert_eq!(ended["end"], json!({ "how": "exited", "code": 3 }));
    assert_eq!(ended["ended_at"], "2026-01-01T00:00:05Z");
    let lease = lease::Entity::find().one(stage.store.read()).await.unwrap().unwrap();
    assert_eq!(lease.revoked_by.as_deref(), Some("gateway"), "the lease ends with its job");
    let again = stage.ok("sandbox.job.cancel", json!({ "job_id": chain.job })).await;
    assert_eq!((&again["status"], again.get("cancel_requested_at")), (&json!("failed"), None));
}

async fn late_and_repeated_messages_change_nothing(stage: Stage) {
    for (end, status) in [
        (End::Exited { code: 0 }, "completed"),
        (End::Cancelled, "canceled"),
        (End::Oom, "failed"),
        (End::NodeLost { why: None }, "failed"),
    ] {
        let job = job(&stage).await;
        let chain = Chain::of(&stage, &job);
        let result = chain.result(1, end);
        assert!(chain.end("one", 20, result.clone()).await, "the result comes before the claim");
        assert!(!chain.end("one", 20, result).await);
        assert!(!chain.claim("one", 10, 1).await);
        assert!(!chain.record("one", 11, Record::Started).await);
        assert_eq!(chain.get().await["status"], status);
        let version =
            row::Entity::find_by_id(id_of(&job)).one(stage.store.read()).await.unwrap().unwrap().version;
        assert_eq!(version, 2, "applied once");
    }
}

async fn files_of_the_result_become_artifacts(stage: Stage) {
    let job = job(&stage).await;
    let chain = Chain::of(&stage, &job);
    let node = node_of(&job);
    let old = json!({ "task_id": job["task_id"], "path": "report.txt", "content": "old" });
    stage.ok("artifact.put", old).await;
    let contents: [(&str, &[u8]); 3] =
        [("report.txt", b"new report"), ("raw.bin", &[0xff, 0, 1]), ("empty.txt", b"")];
    let mut result = chain.result(1, End::Exited { code: 0 });
    for (path, content) in contents {
        let stored = stage.call(&node, "sandbox.job.store", piece(path, content, 0, content.len())).await;
        assert_eq!(stored.unwrap()["is_complete"], true);
        result.files.push(StoredFile {
            path: path.to_owned(),
            size: content.len() as u64,
            sha256: digest(content),
        });
    }
    assert!(chain.end("one", 20, result.clone()).await);
    assert!(!chain.end("one", 20, result).await);
    let ended = chain.get().await;
    assert_eq!((ended["files"].as_array().unwrap().len(), ended.get("problems")), (3, None));
    let read =
        async |path: &str| stage.ok("artifact.get", json!({ "task_id": job["task_id"], "path": path })).await;
    let report = read("report.txt").await;
    assert_eq!((&report["content"], &report["version"]), (&json!("new report"), &json!(2)));
    assert_eq!(read("raw.bin").await["media_type"], "application/octet-stream");
    assert_eq!(read("empty.txt").await["size"], 0);
    assert_eq!(job_file::Entity::find().all(stage.store.read()).await.unwrap(), []);
    let (code, why) = stage.fails_for(&node, "sandbox.job.store", piece("late.txt", b"x", 0, 1)).await;
    assert!(code == "conflict" && why.contains("has ended"), "{why}");
}

async fn file_that_is_not_stored_is_a_problem_and_not_a_failure(stage: Stage) {
    let job = job(&stage).await;
    let chain = Chain::of(&stage, &job);
    let node = node_of(&job);
    stage.call(&node, "sandbox.job.store", piece("other.txt", b"one", 0, 3)).await.unwrap();
    let mut result = chain.result(1, End::Exited { code: 0 });
    let file = |path: &str, content: &[u8]| StoredFile {
        path: path.to_owned(),
        size: content.len() as u64,
        sha256: digest(content),
    };
    result.files = vec![file("none.txt", b"x"), file("other.txt", b"two"), file("../up.txt", b"x")];
    result.problems = vec!["large.bin has 3 GiB".to_owned()];
    assert!(chain.end("one", 20, result).await);
    let ended = chain.get().await;
    assert_eq!((&ended["status"], ended.get("files")), (&json!("completed"), None));
    let problems: Vec<&str> =
        ended["problems"].as_array().unwrap().iter().map(|problem| problem.as_str().unwrap()).collect();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[1].contains("none.txt is not kept: it was not stored"), "{problems:?}");
    assert!(problems[2].contains("another digest"), "{problems:?}");
    let artifacts = stage.ok("artifact.list", json!({ "task_id": job["task_id"] })).await;
    assert_eq!(artifacts["items"], json!([]));
}

async fn unreadable_messages_are_refused_for_good(stage: Stage) {
    let job = job(&stage).await;
    let chain = Chain::of(&stage, &job);
    let (node, other): (NodeId, JobId) = ("one".parse().unwrap(), JobId::now());
    for (subject, body) in [
        (Subject::JobJournal(chain.job, node.clone()), b"{".to_vec()),
        (Subject::JobResult(chain.job, node.clone()), b"{}".to_vec()),
        (Subject::JobResult(other, node.clone()), chain.result(1, End::Oom).encode()),
    ] {
        let refused = chain.apply(subject, 10, &body).await;
        assert!(matches!(refused, Err(NotApplied::Unreadable(_))), "{refused:?}");
    }
    // A job that the store does not know.
    let unknown = JobResult { job_id: other, ..chain.result(1, End::Oom) };
    assert!(!chain.apply(Subject::JobResult(other, node), 10, &unknown.encode()).await.unwrap());
    assert_eq!(chain.get().await["status"], "queued");
}
