//! The memory profile and the tools of leases, of jobs and of workflows.

use contract::workflow::Start;
use control::WorkflowBook;
use policy::{Agent, Caller, Lease, LeaseMode, LeaseStanding, MemoryProfile};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter};
use serde_json::{Value, json};
use store::{
    clock,
    entity::{lease, outbox, preference, system_setting},
};

use crate::{
    memory::of_profile,
    sandbox::task,
    stage::{Stage, each, manager, on_both, orchestrator},
};

on_both![
    lease_has_the_profile_of_its_user,
    profile_that_an_agent_set_has_no_effect,
    lease_keeps_its_profile_when_it_is_renewed_and_its_children_have_it,
    lease_that_a_manager_issues_has_the_profile_of_the_manager,
    job_reaches_the_memories_of_its_manager,
    workflow_of_a_closed_profile_begins_no_job_with_network,
    workflow_of_a_lease_has_no_other_tools,
    workflow_of_an_administrator_has_the_profile_of_its_user,
    workflow_that_is_started_for_a_user_has_the_profile_of_that_user,
];

/// Sets the memory profile of a user.
async fn set_profile(stage: &Stage, user: &str, value: Value, by: &str) {
    stage
        .given(preference::Model {
            id: format!("profile-of-{user}"),
            scope_type: "user".to_owned(),
            scope_id: user.to_owned(),
            key: MemoryProfile::USER_SETTING.to_owned(),
            value: value.to_string(),
            value_type: "string".to_owned(),
            version: 1,
            deleted: false,
            updated_at: 1,
            updated_by: by.to_owned(),
        })
        .await;
}

/// Lets a memory profile reach the network.
async fn open_profile(stage: &Stage, profile: &str) {
    stage
        .given(system_setting::Model {
            key: format!("profile.{profile}.network"),
            value: "true".to_owned(),
            value_type: "boolean".to_owned(),
            version: 1,
            updated_at: 1,
            updated_by: "admin:tok".to_owned(),
        })
        .await;
}

fn profile(name: &str) -> Option<MemoryProfile> {
    Some(name.parse().unwrap())
}

fn lease_of(issued: &Value) -> Lease {
    Lease::read(issued["lease"].as_str().unwrap()).unwrap()
}

/// A caller under a lease, with the memory profile that the gateway gives it.
fn under(agent: Agent, lease: Lease) -> Caller {
    let profile = lease.profile.clone().unwrap_or_default();
    Caller { token: "tok-1".to_owned(), agent, lease: LeaseStanding::Valid(lease), profile }
}

fn runner() -> Caller {
    let lease = LeaseStanding::Absent(LeaseMode::Optional);
    let profile = MemoryProfile::default();
    Caller { token: "tok-runner".to_owned(), agent: Agent::Workflow, lease, profile }
}

/// Issues the lease of a manager for a user, as an orchestrator does.
async fn managers_lease(stage: &Stage, user: &str, tools: Option<&[&str]>) -> Lease {
    let new = json!({ "agent": "project_manager", "user_id": user, "tools": tools });
    lease_of(&stage.call(&orchestrator(), "lease.issue", new).await.unwrap())
}

/// Reads the lease of a job from the message for its node.
async fn lease_of_job(stage: &Stage, job: &str) -> Lease {
    let query = outbox::Entity::find().filter(outbox::Column::Ordering.eq(job));
    let sent = query.one(stage.store.read()).await.unwrap().unwrap();
    Lease::read(&subjects::job::Job::decode(sent.body.as_bytes()).unwrap().lease).unwrap()
}

/// Starts the workflow of a task and takes it for a runner. Returns the epoch.
async fn taken(stage: &Stage, caller: &Caller, task: &str) -> i64 {
    stage.call(caller, "workflow.start", json!({ "task_id": task })).await.unwrap();
    acquire(stage, task, 1).await
}

async fn acquire(stage: &Stage, task: &str, run: i64) -> i64 {
    let wanted = json!({ "task_id": task, "run": run, "holder": "runner-1", "ttl_seconds": 30 });
    stage.call(&runner(), "workflow.lease.acquire", wanted).await.unwrap()["epoch"].as_i64().unwrap()
}

fn job(task: &str, epoch: i64, key: &str, more: &Value) -> Value {
    let mut run = json!({ "command": ["true"] });
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "task_id": task, "epoch": epoch, "key": key, "step": "build", "run": run })
}

/// Begins a handoff of a workflow and returns the row of its lease.
async fn handed_off(stage: &Stage, task: &str, epoch: i64) -> lease::Model {
    let plan = json!({
        "task_id": task, "epoch": epoch, "key": "plan", "kind": "plan",
        "payload": { "goal": "build it", "acceptance_criteria": ["it runs"] },
    });
    let begun = stage.call(&runner(), "workflow.handoff", plan).await.unwrap();
    let of_handoff = lease::Column::HandoffId.eq(begun["handoff_id"].as_str().unwrap());
    lease::Entity::find().filter(of_handoff).one(stage.store.read()).await.unwrap().unwrap()
}

async fn lease_has_the_profile_of_its_user(stage: Stage) {
    set_profile(&stage, "ada", json!("team-a"), "admin:tok").await;
    set_profile(&stage, "bob", json!(null), "admin:tok").await;
    set_profile(&stage, "eve", json!("two words"), "admin:tok").await;
    assert_eq!(managers_lease(&stage, "ada", None).await.profile, profile("team-a"));
    for user in ["bob", "dan"] {
        assert_eq!(managers_lease(&stage, user, None).await.profile, None, "{user}");
    }
    // A name that cannot be read does not become the profile of everyone.
    let new = json!({ "agent": "project_manager", "user_id": "eve" });
    let (code, why) = stage.fails_for(&orchestrator(), "lease.issue", new).await;
    assert!(code == "invalid_arguments" && why.contains("profile.memory of user eve"), "{why}");
}

async fn profile_that_an_agent_set_has_no_effect(stage: Stage) {
    let set = json!({ "scope": "user", "scope_id": "ada", "key": "profile.memory", "value": "team-a" });
    assert_eq!(stage.fails("db.preference.create", set).await.0, "read_only");
    set_profile(&stage, "ada", json!("team-a"), "project_manager:tok-1").await;
    assert_eq!(managers_lease(&stage, "ada", None).await.profile, None);
}

async fn lease_keeps_its_profile_when_it_is_renewed_and_its_children_have_it(stage: Stage) {
    set_profile(&stage, "ada", json!("team-a"), "admin:tok").await;
    let task = task(&stage).await;
    let manager = under(Agent::Manager, managers_lease(&stage, "ada", None).await);
    let renewed = stage.call(&manager, "lease.renew", json!({})).await.unwrap();
    assert_eq!(lease_of(&renewed).profile, profile("team-a"));
    for agent in ["project_analyst", "sandbox"] {
        let new = json!({ "agent": agent, "task_id": task });
        let child = lease_of(&stage.call(&manager, "lease.issue", new.clone()).await.unwrap());
        assert_eq!(child.profile, profile("team-a"), "{agent}");
        // Even if a caller had another one.
        let other = Caller { profile: "team-b".parse().unwrap(), ..manager.clone() };
        let child = lease_of(&stage.call(&other, "lease.issue", new).await.unwrap());
        assert_eq!(child.profile, profile("team-a"), "{agent}");
    }
    let run = json!({ "task_id": task, "command": ["true"] });
    let begun = stage.call(&manager, "sandbox.run", run).await.unwrap();
    let of_job = lease_of_job(&stage, begun["job_id"].as_str().unwrap()).await;
    assert_eq!(of_job.profile, profile("team-a"));
    let node = under(Agent::Node("one".to_owned()), of_job);
    let bind = json!({ "node": "one", "holder": nkeys::KeyPair::new_user().public_key() });
    let bound = lease_of(&stage.call(&node, "lease.bind", bind).await.unwrap());
    assert_eq!(bound.profile, profile("team-a"));
    let node = under(Agent::Node("one".to_owned()), bound.clone());
    let renewed = lease_of(&stage.call(&node, "lease.renew", json!({})).await.unwrap());
    assert_eq!((renewed.profile, renewed.node), (bound.profile, bound.node));
}

async fn lease_that_a_manager_issues_has_the_profile_of_the_manager(stage: Stage) {
    set_profile(&stage, "ada", json!("team-a"), "admin:tok").await;
    let new = json!({ "agent": "project_analyst", "user_id": "ada", "task_id": task(&stage).await });
    let issued = stage.call(&of_profile("team-b"), "lease.issue", new.clone()).await.unwrap();
    assert_eq!(lease_of(&issued).profile, profile("team-b"));
    // `default` is in the row alone, so that workers of an earlier release can read the lease.
    let issued = stage.call(&manager(), "lease.issue", new).await.unwrap();
    assert_eq!(lease_of(&issued).profile, None);
    let row = lease::Entity::find_by_id(issued["lease_id"].as_str().unwrap());
    let row = row.one(stage.store.read()).await.unwrap().unwrap();
    assert_eq!(row.profile.as_deref(), Some("default"));
}

async fn job_reaches_the_memories_of_its_manager(stage: Stage) {
    open_profile(&stage, "team-a").await;
    let own = of_profile("team-a");
    for (caller, path) in [(&own, "own.md"), (&manager(), "shared.md")] {
        let new = json!({ "path": path, "text": "otters swim" });
        stage.call(caller, "memory.put", new).await.unwrap();
    }
    let run = json!({ "task_id": task(&stage).await, "command": ["true"], "tools": ["memory.search"] });
    let begun = stage.call(&own, "sandbox.run", run).await.unwrap();
    let lease = lease_of_job(&stage, begun["job_id"].as_str().unwrap()).await;
    let job = under(Agent::Node("one".to_owned()), lease);
    let found = stage.call(&job, "memory.search", json!({ "query": "otter" })).await.unwrap();
    assert_eq!(each(&found, "memories", "path"), ["own.md"]);
}

/// A runner has the profile `default`, which may reach the network; whoever started the workflow may not.
async fn workflow_of_a_closed_profile_begins_no_job_with_network(stage: Stage) {
    let task = task(&stage).await;
    let epoch = taken(&stage, &of_profile("team-a"), &task).await;
    for (key, more) in
        [("k-1", json!({ "network": ["example.com"] })), ("k-2", json!({ "tools": ["memory.search"] }))]
    {
        let (code, why) = stage.fails_for(&runner(), "workflow.job", job(&task, epoch, key, &more)).await;
        assert_eq!(code, "invalid_arguments");
        assert!(why.contains("the memory profile team-a may not reach the network"), "{why}");
    }
    let begun = stage.call(&runner(), "workflow.job", job(&task, epoch, "k-3", &json!({}))).await.unwrap();
    let lease = lease_of_job(&stage, begun["job"]["job_id"].as_str().unwrap()).await;
    assert_eq!(lease.profile, profile("team-a"));
    assert_eq!(handed_off(&stage, &task, epoch).await.profile.as_deref(), Some("team-a"));
    // Once the profile is open, so is the step.
    open_profile(&stage, "team-a").await;
    let with_network = job(&task, epoch, "k-4", &json!({ "network": ["example.com"] }));
    stage.call(&runner(), "workflow.job", with_network).await.unwrap();
}

async fn workflow_of_a_lease_has_no_other_tools(stage: Stage) {
    let (first, second) = (task(&stage).await, task(&stage).await);
    let narrow = managers_lease(&stage, "ada", Some(&["workflow.*", "db.*"])).await;
    let epoch = taken(&stage, &under(Agent::Manager, narrow), &first).await;
    let (code, why) = stage.fails_for(&runner(), "workflow.job", job(&first, epoch, "k", &json!({}))).await;
    assert!(code == "invalid_arguments" && why.contains("does not include sandbox.run"), "{code}: {why}");
    let tools = handed_off(&stage, &first, epoch).await.tools.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&tools).unwrap(), json!(["workflow.*", "db.*"]));
    // Whoever tries it again, it stays as narrow.
    let failed = json!({ "task_id": first, "epoch": epoch, "outcome": { "failed": { "error": "no" } } });
    stage.call(&runner(), "workflow.lease.release", failed).await.unwrap();
    stage.ok("workflow.retry", json!({ "task_id": first })).await;
    let epoch = acquire(&stage, &first, 2).await;
    let again = job(&first, epoch, "k", &json!({}));
    assert_eq!(stage.fails_for(&runner(), "workflow.job", again).await.0, "invalid_arguments");

    let wider = managers_lease(&stage, "ada", Some(&["workflow.*", "sandbox.run", "artifact.*"])).await;
    let epoch = taken(&stage, &under(Agent::Manager, wider), &second).await;
    let more = json!({ "tools": ["memory.search"] });
    let (_, why) = stage.fails_for(&runner(), "workflow.job", job(&second, epoch, "k-1", &more)).await;
    assert!(why.contains("`tools` has memory.search, which goes beyond the lease"), "{why}");
    let within = job(&second, epoch, "k-2", &json!({ "tools": ["artifact.list"] }));
    stage.call(&runner(), "workflow.job", within).await.unwrap();
}

async fn workflow_of_an_administrator_has_the_profile_of_its_user(stage: Stage) {
    set_profile(&stage, "ada", json!("team-a"), "admin:tok").await;
    let task = task(&stage).await;
    let write = stage.store.write().await.unwrap();
    let db = DatabaseExecutor::Transaction(&write);
    let by = "admin:tok".to_owned();
    let book = WorkflowBook::new(&db, &stage.sandboxes, &stage.leases, clock::now(), by);
    book.start(&Start::new(task.parse().unwrap()), None).await.unwrap();
    write.commit().await.unwrap();
    let epoch = acquire(&stage, &task, 1).await;
    let with_network = job(&task, epoch, "k-1", &json!({ "network": ["example.com"] }));
    let (_, why) = stage.fails_for(&runner(), "workflow.job", with_network).await;
    assert!(why.contains("the memory profile team-a may not reach the network"), "{why}");
    let row = handed_off(&stage, &task, epoch).await;
    assert_eq!((row.profile.as_deref(), row.tools), (Some("team-a"), None));
}

/// A manager without a lease acts for nobody: what it starts for a user must not reach what all share.
async fn workflow_that_is_started_for_a_user_has_the_profile_of_that_user(stage: Stage) {
    set_profile(&stage, "ada", json!("team-a"), "admin:tok").await;
    let task = task(&stage).await;
    let epoch = taken(&stage, &manager(), &task).await;
    assert_eq!(handed_off(&stage, &task, epoch).await.profile.as_deref(), Some("team-a"));
}
