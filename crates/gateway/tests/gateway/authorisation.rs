//! Who may call what, in every combination, against a table that was written from the requirements, not from
//! the code.
//!
//! P16, M103–M106, M114, M116, M117.

mod leases;
mod profiles;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use policy::{
    Agent, Caller, Facts, Gate, LeaseMode, LeaseStanding, MemoryProfile, Origin, Scope, ScopedId, Standing,
    TaskFacts, TokenBinding, Tool, decide,
};
use serde_json::{Map, Value};

use self::table::TABLE;

const FAMILIES: &str = "help lease thread key schedule egress db artifact skills persona node model sandbox \
     workflow web api git connector memory admin";

const USER: &str = "ada";
const TASK: &str = "task-1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Manager,
    Analyst,
    Sandbox,
    Orchestrator,
    Workflow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Valid,
    Expired,
    Revoked,
    Unknown,
    /// Bound to another user and a task of that user.
    OtherUsers,
    /// Bound to the same user and another task.
    OtherTasks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Right,
    Wrong,
    Missing,
}

struct Line {
    tool: String,
    origin: Origin,
    on_list: [bool; 5],
    needs: Option<ScopedId>,
}

fn lines() -> Vec<Line> {
    TABLE.lines().map(str::trim).filter(|line| !line.is_empty()).map(read).collect()
}

fn read(line: &str) -> Line {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, manager, analyst, sandbox, orchestrator, workflow, needs] = words[..] else {
        panic!("{line}")
    };
    let (origin, tool) = match name.split_once(':') {
        Some(("ours", tool)) => (Origin::Installed { owner: None }, tool),
        Some(("mine", tool)) => (Origin::Installed { owner: Some(USER.into()) }, tool),
        Some(("theirs", tool)) => (Origin::Installed { owner: Some("eve".into()) }, tool),
        Some(_) => panic!("{line}"),
        None if FAMILIES.split(' ').any(|family| name.starts_with(family)) => (Origin::Family, name),
        // No upstream has it and it is in no family: only an inconsistent store could list it.
        None => (Origin::BuiltIn, name),
    };
    let needs = match needs {
        "-" => None,
        "task_id" => Some(ScopedId::Task),
        "run_id" => Some(ScopedId::Run),
        "job_id" => Some(ScopedId::Job),
        other => panic!("{other}"),
    };
    let on_list = [manager, analyst, sandbox, orchestrator, workflow].map(|cell| cell == "y");
    Line { tool: tool.into(), origin, on_list, needs }
}

/// Facts in the store: a task of Ada with a job and a run, another task of hers, and one of Eve.
fn facts() -> Facts {
    let task =
        |user: &str, project: &str| TaskFacts { user: Some(user.into()), project: Some(project.into()) };
    let of = |id: &str, owner: &str| (id.to_owned(), owner.to_owned());
    let run = |id: &str, owners: &[&str]| {
        (id.to_owned(), owners.iter().map(|&owner| owner.to_owned()).collect::<BTreeSet<_>>())
    };
    Facts {
        tasks: BTreeMap::from([
            (TASK.into(), task(USER, "project-1")),
            ("task-2".into(), task(USER, "project-1")),
            ("task-9".into(), task("eve", "project-9")),
            ("task-0".into(), TaskFacts::default()),
        ]),
        jobs: BTreeMap::from([of("job-1", TASK), of("job-2", "task-2"), of("job-9", "task-9")]),
        runs: BTreeMap::from([
            run("run-1", &[TASK]),
            run("run-2", &["task-2"]),
            run("run-9", &["task-9"]),
            run("run-19", &[TASK, "task-9"]),
        ]),
        projects: BTreeMap::from([
            ("project-1".to_owned(), Some(USER.to_owned())),
            ("project-9".to_owned(), Some("eve".to_owned())),
        ]),
    }
}

fn standing(kind: Kind, token: Token) -> Standing {
    let bound = match token {
        Token::OtherUsers => TokenBinding { user: "eve".into(), task: "task-9".into() },
        Token::OtherTasks => TokenBinding { user: USER.into(), task: "task-2".into() },
        _ => TokenBinding { user: USER.into(), task: TASK.into() },
    };
    let agent = match kind {
        Kind::Manager => Agent::Manager,
        Kind::Analyst => Agent::Analyst(Some(bound)),
        Kind::Sandbox => Agent::Sandbox(Some(bound)),
        Kind::Orchestrator => Agent::Orchestrator,
        Kind::Workflow => Agent::Workflow,
    };
    let lease = LeaseStanding::Absent(LeaseMode::Optional);
    let caller = Caller { token: "token".into(), agent, lease, profile: MemoryProfile::default() };
    match token {
        Token::Expired => Standing::Expired(caller),
        Token::Revoked => Standing::Revoked(caller),
        Token::Unknown => Standing::Unknown,
        Token::Valid | Token::OtherUsers | Token::OtherTasks => Standing::Valid(caller),
    }
}

/// Arguments of a call about Ada's first task. A wrong id is of another task or unknown.
fn arguments(needs: Option<ScopedId>, id: Id) -> Map<String, Value> {
    let mut arguments = Map::new();
    let Some(needs) = needs else { return arguments };
    let (right, wrong) = match needs {
        ScopedId::Task => (TASK, "task-404"),
        ScopedId::Job => ("job-1", "job-2"),
        ScopedId::Run => ("run-1", "run-2"),
        ScopedId::User | ScopedId::Project => panic!("no tool needs these alone"),
    };
    if needs != ScopedId::Task {
        arguments.insert("task_id".into(), TASK.into());
    }
    let given: Option<Value> = match id {
        Id::Right => Some(right.into()),
        Id::Wrong => Some(wrong.into()),
        Id::Missing => None,
    };
    if let Some(given) = given {
        arguments.insert(needs.argument().into(), given);
    }
    arguments
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    scope: Scope,
    enabled: bool,
    quarantined: bool,
    token: Token,
    id: Id,
}

/// The expected decision, following the wording of the requirements.
fn expected(line: &Line, case: Case) -> bool {
    let Case { kind, scope, enabled, quarantined, token, id } = case;
    // M116, M117: only a valid token. M113: only an enabled tool.
    if matches!(token, Token::Expired | Token::Revoked | Token::Unknown) || !enabled || quarantined {
        return false;
    }
    // M114: sandbox, PM (manager, analyst, orchestrator and runner), both.
    let scope_fits = match kind {
        Kind::Sandbox => scope == Scope::Sandbox || scope == Scope::Both,
        Kind::Manager | Kind::Analyst | Kind::Orchestrator | Kind::Workflow => {
            scope == Scope::Pm || scope == Scope::Both
        }
    };
    // P16, M115. The table is about Ada's tokens: with Eve's token, Ada's upstreams are out of reach and
    // Eve's are not.
    let on_list = match (&line.origin, kind) {
        (Origin::Installed { owner: Some(owner) }, Kind::Sandbox) if token == Token::OtherUsers => {
            owner == "eve"
        }
        (_, Kind::Manager) => line.on_list[0],
        (_, Kind::Analyst) => line.on_list[1],
        (_, Kind::Sandbox) => line.on_list[2],
        (_, Kind::Orchestrator) => line.on_list[3],
        (_, Kind::Workflow) => line.on_list[4],
    };
    // M103–M106. The call is about Ada's first task: a manager, an orchestrator or a runner may make it, a
    // bound token only if it is for that task.
    let ids_fit = match (line.needs, id) {
        (None, _) => true,
        (Some(_), Id::Missing | Id::Wrong) => false,
        (Some(_), Id::Right) => {
            matches!(kind, Kind::Manager | Kind::Orchestrator | Kind::Workflow) || token == Token::Valid
        }
    };
    scope_fits && on_list && ids_fit
}

fn cases() -> Vec<Case> {
    let tokens =
        [Token::Valid, Token::Expired, Token::Revoked, Token::Unknown, Token::OtherUsers, Token::OtherTasks];
    let mut cases = Vec::new();
    for kind in [Kind::Manager, Kind::Analyst, Kind::Sandbox, Kind::Orchestrator, Kind::Workflow] {
        for scope in [Scope::Sandbox, Scope::Pm, Scope::Both] {
            for (enabled, quarantined) in [(true, false), (true, true), (false, false), (false, true)] {
                for token in tokens {
                    for id in [Id::Right, Id::Wrong, Id::Missing] {
                        cases.push(Case { kind, scope, enabled, quarantined, token, id });
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn every_combination_is_decided_as_required() {
    let (mut checked, mut permitted) = (0, 0);
    let facts = facts();
    for line in lines() {
        for case in cases() {
            let tool = Tool {
                name: line.tool.clone(),
                origin: line.origin.clone(),
                enabled: case.enabled,
                scope: case.scope,
                quarantined: case.quarantined,
                needs: line.needs.into_iter().collect(),
                gate: None,
                network: None,
            };
            let arguments = arguments(line.needs, case.id);
            let standing = standing(case.kind, case.token);
            let decided = decide(&standing, Some(&tool), &[], &arguments, &facts);
            let expected = expected(&line, case);
            assert_eq!(decided.is_ok(), expected, "{} {case:?}: {decided:?}", line.tool);
            checked += 1;
            permitted += usize::from(expected);
            // Unknown tools are denied for every agent (M117).
            assert!(decide(&standing, None, &[], &arguments, &facts).is_err());
        }
    }
    println!("{checked} combinations, {permitted} permitted");
    assert!(checked > 60_000 && permitted > 1_000, "{checked} {permitted}");
}

/// The ids of a call: each absent, of Ada's first task, of another task, or unknown.
#[derive(Clone, Copy, Debug)]
struct Ids {
    task: Option<&'static str>,
    run: Option<&'static str>,
    job: Option<&'static str>,
    user: Option<&'static str>,
    project: Option<&'static str>,
}

fn all_ids() -> Vec<Ids> {
    let mut all = Vec::new();
    for task in [None, Some(TASK), Some("task-2"), Some("task-9"), Some("task-0"), Some("task-404")] {
        for run in [None, Some("run-1"), Some("run-9"), Some("run-19"), Some("run-404")] {
            for job in [None, Some("job-1"), Some("job-9"), Some("job-404")] {
                for user in [None, Some(USER), Some("eve")] {
                    for project in [None, Some("project-1"), Some("project-9"), Some("project-404")] {
                        all.push(Ids { task, run, job, user, project });
                    }
                }
            }
        }
    }
    all
}

/// M106, M117: all ids belong to one task in the store; for a bound token, to its own task.
fn ids_expected(ids: Ids, is_own: bool, bound: Option<&TokenBinding>, facts: &Facts) -> bool {
    let Ids { task, run, job, user, project } = ids;
    let known = (
        task.is_none_or(|id| facts.tasks.contains_key(id)),
        run.is_none_or(|id| facts.runs.contains_key(id)),
        job.is_none_or(|id| facts.jobs.contains_key(id)),
        project.is_none_or(|id| facts.projects.contains_key(id)),
    );
    // Built-in tools look up unknown ids themselves; upstream tools never receive one.
    if !is_own && known != (true, true, true, true) {
        return false;
    }
    let run = run.filter(|_| bound.is_some() || known.1);
    let job = job.filter(|_| bound.is_some() || known.2);
    let belongs = |id: &str, owner: &TaskFacts| {
        task.is_none_or(|task| task == id)
            && run.is_none_or(|run| facts.runs.get(run).is_some_and(|tasks| tasks.contains(id)))
            && job.is_none_or(|job| facts.jobs.get(job).is_some_and(|task| task == id))
            && user.is_none_or(|user| owner.user.as_deref() == Some(user))
            && project.is_none_or(|project| owner.project.as_deref() == Some(project))
    };
    if let Some(bound) = bound {
        return belongs(&bound.task, &facts.tasks[&bound.task]);
    }
    let names_a_task = task.is_some() || run.is_some() || job.is_some();
    // An unknown task has no user and no project to compare with, and no run or job belongs to it.
    let is_loose = !known.0 && run.is_none() && job.is_none();
    !names_a_task || is_loose || facts.tasks.iter().any(|(id, owner)| belongs(id, owner))
}

#[test]
fn ids_that_do_not_belong_together_are_denied_for_every_agent() {
    let facts = facts();
    let (mut checked, mut permitted) = (0, 0);
    let agents =
        [(Kind::Manager, Token::Valid), (Kind::Sandbox, Token::Valid), (Kind::Sandbox, Token::OtherUsers)];
    for (kind, token) in agents {
        let standing = standing(kind, token);
        for (name, origin) in [
            ("artifact.put", Origin::BuiltIn),
            ("artifact.copy", Origin::Family),
            ("pad.note", Origin::Installed { owner: None }),
        ] {
            let is_own = origin == Origin::BuiltIn;
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
            for ids in all_ids() {
                let named = [
                    ("task_id", ids.task),
                    ("run_id", ids.run),
                    ("job_id", ids.job),
                    ("user_id", ids.user),
                    ("project_id", ids.project),
                ];
                let arguments: Map<String, Value> =
                    named.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?.into()))).collect();
                let bound = standing.caller().and_then(|caller| caller.agent.binding());
                let expected = ids_expected(ids, is_own, bound, &facts);
                let decided = decide(&standing, Some(&tool), &[], &arguments, &facts);
                assert_eq!(decided.is_ok(), expected, "{kind:?} {token:?} {name} {ids:?}: {decided:?}");
                checked += 1;
                permitted += usize::from(expected);
            }
        }
    }
    println!("{checked} combinations, {permitted} permitted");
    assert!(checked > 12_000 && permitted > 100, "{checked} {permitted}");
}

/// P16: `sandbox.allowed_images.add` is allowed only if the system setting permits it.
#[test]
fn gated_tool_needs_its_setting() {
    for open in [true, false] {
        let tool = Tool {
            name: "sandbox.allowed_images.add".into(),
            origin: Origin::BuiltIn,
            enabled: true,
            scope: Scope::Pm,
            quarantined: false,
            needs: Vec::new(),
            gate: Some(Gate { setting: "sandbox.allowed_images.agents_may_add", open }),
            network: None,
        };
        let standing = standing(Kind::Manager, Token::Valid);
        assert_eq!(decide(&standing, Some(&tool), &[], &Map::new(), &facts()).is_ok(), open);
    }
}

/// The table lists every built-in tool with its actual ids and scope.
#[test]
fn table_matches_the_built_in_tools() {
    let lines = lines();
    for entry in control::all() {
        let line = lines.iter().find(|line| line.tool == entry.name);
        let line = line.unwrap_or_else(|| panic!("{} is not in the table", entry.name));
        let needed = |id: &ScopedId| matches!(id, ScopedId::Task | ScopedId::Run | ScopedId::Job);
        let needs: Vec<ScopedId> = entry.needs.iter().copied().filter(needed).collect();
        assert_eq!(needs, line.needs.into_iter().collect::<Vec<_>>(), "{}", entry.name);
        // Memories are on the list of sandboxes, which see them once an administrator sets their scope.
        let is_opened_later = entry.name.starts_with("memory.");
        let for_sandboxes = entry.scope != Scope::Pm;
        assert_eq!(for_sandboxes, line.on_list[2] && !is_opened_later, "scope of {}", entry.name);
    }
}
