//! Leases in the decision, in every combination with agent type, token, tool and ids, against rules that were
//! written from the design, not from the code (P21).

use std::collections::BTreeMap;

use policy::{
    Agent, AgentKind, Caller, Lease, LeaseMode, LeaseStanding, MemoryProfile, Origin, Scope, Standing,
    TokenBinding, Tool, decide,
};
use serde_json::{Map, Value};

use super::{TASK, USER, facts};

/// What the token of the call is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    /// Nothing, at a gateway where managers need a lease.
    NothingButLeasesAreRequired,
    /// Ada's first task. Only for analysts and sandboxes.
    OwnTask,
}

/// The lease of the call. Unless it says otherwise, it is Ada's, for the agent type of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    None,
    OfUser,
    OfTask,
    OfProject,
    Early,
    Renewable,
    Expired,
    Revoked,
    OtherUser,
    OtherTask,
    OtherAgent,
    /// Includes `db.task.get` and `artifact.*` alone.
    NarrowTools,
    /// Unreadable, forged, of an unknown key, or not in the store.
    Unknown,
}

const LEASES: [Given; 13] = [
    Given::None,
    Given::OfUser,
    Given::OfTask,
    Given::OfProject,
    Given::Early,
    Given::Renewable,
    Given::Expired,
    Given::Revoked,
    Given::OtherUser,
    Given::OtherTask,
    Given::OtherAgent,
    Given::NarrowTools,
    Given::Unknown,
];

/// A tool, whether manager, analyst, sandbox and orchestrator may call it at all, and who owns its server.
const TOOLS: [(&str, [bool; 4], Option<&str>); 19] = [
    ("db.task.get", [true, true, false, false], None),
    ("db.task.create", [true, false, false, false], None),
    ("db.finding.create", [true, true, false, false], None),
    ("db.preference.list", [true, true, false, false], None),
    ("artifact.get", [true, true, true, false], None),
    ("artifact.put", [true, false, true, false], None),
    ("web.fetch", [true, true, true, false], None),
    ("help.list", [true, true, true, true], None),
    ("lease.issue", [true, false, false, true], None),
    ("lease.renew", [true, true, true, true], None),
    ("lease.revoke", [true, true, true, true], None),
    ("thread.turn.begin", [false, false, false, true], None),
    ("thread.list", [false, false, false, true], None),
    ("key.check", [false, false, false, true], None),
    ("workflow.start", [true, false, false, false], None),
    ("workflow.lease.acquire", [false, false, false, false], None),
    ("shared:files.read", [true, false, true, false], None),
    ("installed:files.read", [true, false, true, false], Some(USER)),
    ("installed:files.read", [true, false, true, false], Some("eve")),
];

/// What a call is about: ids as the arguments name them.
const IDS: [&[(&str, &str)]; 14] = [
    &[],
    &[("task_id", TASK)],
    &[("task_id", "task-2")],
    &[("task_id", "task-9")],
    &[("task_id", "task-0")],
    &[("user_id", USER)],
    &[("user_id", "eve")],
    &[("project_id", "project-1")],
    &[("project_id", "project-9")],
    &[("job_id", "job-1")],
    &[("job_id", "job-9")],
    &[("run_id", "run-19")],
    &[("task_id", TASK), ("user_id", USER)],
    &[("task_id", TASK), ("user_id", "eve")],
];

fn is_task_worker(kind: AgentKind) -> bool {
    matches!(kind, AgentKind::ProjectAnalyst | AgentKind::Sandbox | AgentKind::Node)
}

fn lease(kind: AgentKind, given: Given) -> LeaseStanding {
    let is_task_worker = is_task_worker(kind);
    let other = match kind {
        AgentKind::ProjectManager => AgentKind::ProjectAnalyst,
        _ => AgentKind::ProjectManager,
    };
    let mut lease = Lease {
        lease_id: "lease".into(),
        agent: if kind == AgentKind::Node { AgentKind::Sandbox } else { kind },
        user_id: USER.into(),
        project_id: None,
        task_id: is_task_worker.then(|| TASK.into()),
        run_id: None,
        job_id: None,
        handoff_id: None,
        tools: None,
        profile: None,
        node: None,
        holder: None,
        audit_quota: None,
        local: BTreeMap::new(),
        rules: None,
        not_before: 0,
        expires_at: 1,
        key: String::new(),
    };
    match given {
        Given::OfUser => lease.task_id = None,
        Given::OfTask => lease.task_id = Some(TASK.into()),
        Given::OfProject => lease.project_id = Some("project-1".into()),
        Given::OtherUser => {
            lease.user_id = "eve".into();
            lease.task_id = lease.task_id.map(|_| "task-9".into());
        }
        Given::OtherTask => lease.task_id = Some("task-2".into()),
        Given::OtherAgent => lease.agent = other,
        Given::NarrowTools => lease.tools = Some(vec!["db.task.get".into(), "artifact.*".into()]),
        _ => {}
    }
    match given {
        Given::None | Given::Unknown => LeaseStanding::Unknown,
        Given::Early => LeaseStanding::Early(lease),
        Given::Renewable => LeaseStanding::Renewable(lease),
        Given::Expired => LeaseStanding::Expired(lease),
        Given::Revoked => LeaseStanding::Revoked(lease),
        _ => LeaseStanding::Valid(lease),
    }
}

fn caller(kind: AgentKind, bound: Bound, given: Given) -> Option<Caller> {
    let binding = (bound == Bound::OwnTask).then(|| TokenBinding { user: USER.into(), task: TASK.into() });
    let agent = match kind {
        AgentKind::ProjectManager | AgentKind::Orchestrator | AgentKind::Node | AgentKind::Workflow
            if binding.is_some() =>
        {
            return None;
        }
        AgentKind::ProjectManager => Agent::Manager,
        AgentKind::Orchestrator => Agent::Orchestrator,
        AgentKind::Node => Agent::Node("node-1".into()),
        AgentKind::Workflow => Agent::Workflow,
        AgentKind::ProjectAnalyst => Agent::Analyst(binding),
        AgentKind::Sandbox => Agent::Sandbox(binding),
    };
    let mode = match bound {
        Bound::NothingButLeasesAreRequired => LeaseMode::Required,
        Bound::Nothing | Bound::OwnTask => LeaseMode::Optional,
    };
    let lease = if given == Given::None { LeaseStanding::Absent(mode) } else { lease(kind, given) };
    Some(Caller { token: "token".into(), agent, lease, profile: MemoryProfile::default() })
}

/// Whom and what the call may be about: user, task and project; `None` where anything goes.
struct Reach {
    user: Option<&'static str>,
    task: Option<&'static str>,
    project: Option<&'static str>,
}

/// Returns what token and lease let the caller reach; `None` if they permit nothing at all.
fn reach(kind: AgentKind, bound: Bound, given: Given, tool: &str) -> Option<Reach> {
    let is_task_worker = is_task_worker(kind);
    let everything = Reach { user: None, task: None, project: None };
    let own_task = Reach { user: Some(USER), task: Some(TASK), project: None };
    let own_user = Reach { user: Some(USER), task: None, project: None };
    match given {
        // "An analyst's token is bound to nothing and does nothing without a lease."
        Given::None if bound == Bound::OwnTask => Some(own_task),
        Given::None if is_task_worker => None,
        Given::None if kind == AgentKind::ProjectManager && bound == Bound::NothingButLeasesAreRequired => {
            None
        }
        Given::None => Some(everything),
        Given::Early | Given::Expired | Given::OtherAgent | Given::Unknown => None,
        // An expired lease can be renewed and given back, and nothing else.
        Given::Renewable if matches!(tool, "lease.renew" | "lease.revoke") => {
            Some(if is_task_worker { own_task } else { own_user })
        }
        // One that was revoked can be given back again, which has no effect.
        Given::Revoked if tool == "lease.revoke" => Some(if is_task_worker { own_task } else { own_user }),
        Given::Renewable | Given::Revoked => None,
        // Both narrow: a bound token is of no use for another user or task.
        Given::OtherUser | Given::OtherTask if bound == Bound::OwnTask => None,
        // An analyst and a sandbox work on one task.
        Given::OfUser if is_task_worker => None,
        Given::OtherUser if is_task_worker => {
            Some(Reach { user: Some("eve"), task: Some("task-9"), project: None })
        }
        Given::OtherUser => Some(Reach { user: Some("eve"), task: None, project: None }),
        Given::OtherTask => Some(Reach { user: Some(USER), task: Some("task-2"), project: None }),
        Given::OfTask => Some(own_task),
        Given::OfProject if is_task_worker => Some(Reach { project: Some("project-1"), ..own_task }),
        Given::OfProject => Some(Reach { project: Some("project-1"), ..own_user }),
        Given::OfUser | Given::NarrowTools if is_task_worker => Some(own_task),
        Given::OfUser | Given::NarrowTools => Some(own_user),
    }
}

/// Who owns what, in the words of the facts.
fn owner(id: &str) -> Option<&'static str> {
    match id {
        TASK | "task-2" | "job-1" | "project-1" | "run-19" => Some(USER),
        "task-9" | "job-9" | "project-9" => Some("eve"),
        _ => None,
    }
}

fn is_within(reach: &Reach, ids: &[(&str, &str)]) -> bool {
    // Ids that contradict each other are denied for every caller.
    if ids.contains(&("task_id", TASK)) && ids.contains(&("user_id", "eve")) {
        return false;
    }
    ids.iter().all(|(name, id)| match (*name, reach.user, reach.task) {
        (_, None, _) => true,
        ("user_id", Some(user), _) => *id == user,
        ("task_id", _, Some(task)) => *id == task,
        ("project_id", Some(user), Some(_)) => owner(id) == Some(user),
        ("job_id", _, Some(task)) => (*id, task) == ("job-1", TASK) || (*id, task) == ("job-9", "task-9"),
        // The run is one of both users' first tasks.
        ("run_id", _, Some(task)) => task == TASK || task == "task-9",
        ("run_id", _, None) => true,
        ("task_id", Some(user), None) => {
            // What has no owner belongs to all users, but it is in no project.
            match owner(id) {
                Some(owner) => owner == user,
                None => reach.project.is_none(),
            }
        }
        (_, Some(user), None) => owner(id).is_none_or(|owner| owner == user),
        _ => panic!("{name}"),
    })
}

/// The number of combinations is printed; `--nocapture` shows it.
#[test]
fn leases_narrow_every_combination_as_designed() {
    let facts = facts();
    let (mut checked, mut permitted) = (0, 0);
    for kind in AgentKind::ALL {
        // A node acts as the sandboxes that it runs.
        let acts_as = if kind == AgentKind::Node { AgentKind::Sandbox } else { kind };
        let column = AgentKind::ALL.iter().position(|other| *other == acts_as).unwrap();
        // A runner of workflows has its own tools and help, and nothing else.
        let is_listed = |name: &str, allowed: [bool; 4]| match kind {
            AgentKind::Workflow => matches!(name, "help.list" | "workflow.lease.acquire"),
            _ => allowed[column],
        };
        for bound in [Bound::Nothing, Bound::NothingButLeasesAreRequired, Bound::OwnTask] {
            for given in LEASES {
                let Some(caller) = caller(kind, bound, given) else { continue };
                let standing = Standing::Valid(caller);
                for (name, allowed, owner_of_server) in TOOLS {
                    let (origin, name) = match name.split_once(':') {
                        Some(("shared", name)) => (Origin::Installed { owner: None }, name),
                        Some((_, name)) => {
                            (Origin::Installed { owner: owner_of_server.map(str::to_owned) }, name)
                        }
                        None => (Origin::BuiltIn, name),
                    };
                    let tool = Tool {
                        name: name.into(),
                        origin,
                        enabled: true,
                        scope: Scope::Both,
                        quarantined: false,
                        needs: Vec::new(),
                        gate: None,
                        network: None,
                    };
                    let reach = reach(kind, bound, given, name);
                    let is_included = given != Given::NarrowTools
                        || name == "db.task.get"
                        || name.starts_with("artifact.")
                        || name.starts_with("lease.");
                    for ids in IDS {
                        let arguments: Map<String, Value> =
                            ids.iter().map(|(id, value)| ((*id).to_owned(), (*value).into())).collect();
                        let expected = is_listed(name, allowed)
                            && is_included
                            && reach.as_ref().is_some_and(|reach| {
                                let owns = reach
                                    .user
                                    .is_none_or(|user| owner_of_server.is_none_or(|owner| owner == user));
                                owns && is_within(reach, ids)
                            });
                        let decided = decide(&standing, Some(&tool), &[], &arguments, &facts);
                        let case =
                            format!("{kind} {bound:?} {given:?} {name} of {owner_of_server:?} {ids:?}");
                        assert_eq!(decided.is_ok(), expected, "{case}: {decided:?}");
                        checked += 1;
                        permitted += usize::from(expected);
                    }
                }
            }
        }
    }
    println!("{checked} combinations, {permitted} permitted");
    assert!(checked > 20_000 && permitted > 2_000, "{checked} {permitted}");
}
