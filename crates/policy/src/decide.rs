//! The decision whether a call is permitted, and the proof of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    AgentKind, Bounds, CallIds, Caller, Denial, Effect, Facts, Lease, Rule, ScopedId, Standing, TaskFacts,
    Tool, agent::ToOwnLease, allowlist, tool::Origin, urls,
};

/// Proof that a call was permitted. Only [`decide`] creates it, and running a tool requires it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    caller: Caller,
    tool: String,
    ids: CallIds,
}

impl Permitted {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn tool(&self) -> &str {
        &self.tool
    }

    pub fn ids(&self) -> &CallIds {
        &self.ids
    }
}

/// Decides about one call. Denies whatever cannot be resolved (M117).
pub fn decide(
    standing: &Standing,
    tool: Option<&Tool>,
    rules: &[Rule],
    arguments: &Map<String, Value>,
    facts: &Facts,
) -> Result<Permitted, Denial> {
    let Visible { caller, tool, bounds } = check_visible(standing, tool)?;
    caller.check_own_lease(arguments)?;
    if let Some(rule) = super::rules::first_applicable(rules, caller, &tool.name, arguments)
        && rule.effect == Effect::Deny
    {
        return Err(Denial::Rule(rule.id.clone()));
    }
    let ids = CallIds::read(arguments)?;
    if let Some(missing) = tool.needs.iter().find(|id| ids.get(**id).is_none()) {
        return Err(Denial::MissingId(*missing));
    }
    if tool.origin != Origin::BuiltIn {
        check_ids_known(&ids, facts)?;
    }
    check_ids_consistent(&ids, facts)?;
    if let Some(bounds) = &bounds {
        check_ids_within_bounds(bounds, &ids, facts)?;
    }
    if let Some(argument) = urls::find_forbidden(&tool.name, arguments) {
        return Err(Denial::ForbiddenAddress(argument));
    }
    Ok(Permitted { caller: caller.clone(), tool: tool.name.clone(), ids })
}

/// Denies a list of tools to a caller whose lease is not valid, or who needs one: an empty list would look as
/// if there were no tools. An analyst or a sandbox without a lease gets the empty list.
pub fn check_listing(standing: &Standing) -> Result<(), Denial> {
    let Standing::Valid(caller) = standing else { return Ok(()) };
    match caller.check_bounds(ToOwnLease::Nothing) {
        Err(Denial::MissingLease) if caller.agent.kind() != AgentKind::ProjectManager => Ok(()),
        checked => checked.map(drop),
    }
}

/// A tool that a caller may see, and what the caller is confined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible<'a> {
    pub caller: &'a Caller,
    pub tool: &'a Tool,
    /// `None`: the caller acts for the whole system.
    pub bounds: Option<Bounds>,
}

/// Makes the part of the decision that does not depend on the arguments. An agent sees exactly the tools that
/// pass.
pub fn check_visible<'a>(standing: &'a Standing, tool: Option<&'a Tool>) -> Result<Visible<'a>, Denial> {
    let caller = standing.valid_caller()?;
    let bounds = caller.check_bounds(tool.map_or(ToOwnLease::Nothing, |tool| ToOwnLease::of(&tool.name)))?;
    let tool = tool.ok_or(Denial::UnknownTool)?;
    let kind = caller.agent.acts_as();
    if tool.quarantined {
        return Err(Denial::Quarantined);
    }
    if !tool.enabled {
        return Err(Denial::Disabled);
    }
    if !tool.scope.includes(kind) {
        return Err(Denial::OutOfScope);
    }
    if !allowlist::allows(kind, &tool.name, &tool.origin) {
        return Err(Denial::NotAllowed);
    }
    if caller.lease.lease().is_some_and(|lease| !lease.includes_tool(&tool.name)) {
        return Err(Denial::OutsideLease);
    }
    if let (Origin::Installed { owner }, Some(bounds)) = (&tool.origin, &bounds)
        && !bounds.includes_owner(owner.as_deref())
    {
        return Err(Denial::NotYours);
    }
    if let Some(gate) = tool.gate.as_ref().filter(|gate| !gate.open) {
        return Err(Denial::SettingOff(gate.setting));
    }
    match &tool.network {
        Some(profiles) if !profiles.allow(&caller.profile) => {
            Err(Denial::NetworkNotAllowed(caller.profile.clone()))
        }
        _ => Ok(Visible { caller, tool, bounds }),
    }
}

/// Denies what another program does for an agent, unless the agent acts for a user: token and lease must be
/// valid and belong together. A lease is required, also of an agent that needs none to call tools.
pub fn check_acting_for<'a>(standing: &'a Standing, facts: &Facts) -> Result<&'a Lease, Denial> {
    let caller = standing.valid_caller()?;
    let bounds = caller.check_bounds(ToOwnLease::Nothing)?.ok_or(Denial::MissingLease)?;
    let lease = caller.lease.lease().ok_or(Denial::MissingLease)?;
    check_ids_within_bounds(&bounds, &CallIds::default(), facts)?;
    Ok(lease)
}

/// Denies an upstream call that names an id unknown to the store, for every agent type (M106, M117). Built-in
/// tools look ids up themselves, and some of them create new ones.
fn check_ids_known(ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let is_known = |id: ScopedId, text: &String| match id {
        ScopedId::Task => facts.tasks.contains_key(text),
        ScopedId::Run => facts.runs.contains_key(text),
        ScopedId::Job => facts.jobs.contains_key(text),
        ScopedId::Project => facts.projects.contains_key(text),
        // The store has no list of users. A user is compared with the task that the call names.
        ScopedId::User => true,
    };
    let given = [
        (ScopedId::Task, &ids.task),
        (ScopedId::Run, &ids.run),
        (ScopedId::Job, &ids.job),
        (ScopedId::Project, &ids.project),
    ];
    for (id, text) in given {
        if text.as_ref().is_some_and(|text| !is_known(id, text)) {
            return Err(Denial::MismatchedId(id));
        }
    }
    Ok(())
}

/// Denies a call whose ids do not belong together, for every agent type (M106). Ids that are not in `facts`
/// are left to [`check_ids_known`].
fn check_ids_consistent(ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let mut tasks: Option<BTreeSet<&String>> = ids.task.as_ref().map(|task| BTreeSet::from([task]));
    let job = ids.job.as_ref().and_then(|job| facts.jobs.get(job)).map(|task| BTreeSet::from([task]));
    let run = ids.run.as_ref().and_then(|run| facts.runs.get(run)).map(|tasks| tasks.iter().collect());
    for (id, owners) in [(ScopedId::Job, job), (ScopedId::Run, run)] {
        tasks = match (tasks, owners) {
            (Some(tasks), Some(owners)) => Some(&tasks & &owners),
            (tasks, owners) => tasks.or(owners),
        };
        if tasks.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(Denial::MismatchedId(id));
        }
    }
    // User and project must be those of one of the tasks that the call is about.
    let candidates: Vec<&TaskFacts> =
        tasks.into_iter().flatten().filter_map(|task| facts.tasks.get(task)).collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let project_fits = |task: &&TaskFacts| ids.project.is_none() || task.project == ids.project;
    let user_fits = |task: &&TaskFacts| ids.user.is_none() || task.user == ids.user;
    let of_project: Vec<&TaskFacts> = candidates.into_iter().filter(project_fits).collect();
    match of_project.iter().find(|task| user_fits(task)) {
        Some(_) => Ok(()),
        None if of_project.is_empty() => Err(Denial::MismatchedId(ScopedId::Project)),
        None => Err(Denial::MismatchedId(ScopedId::User)),
    }
}

/// Denies a call of a confined caller that names anything beyond its bounds (M106).
fn check_ids_within_bounds(bounds: &Bounds, ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let require = |id: ScopedId, is_within: bool| match ids.get(id) {
        Some(_) if !is_within => Err(Denial::MismatchedId(id)),
        _ => Ok(()),
    };
    let is_bound = |bound: &Option<String>, id: &Option<String>| bound.is_none() || id == bound;
    require(ScopedId::User, ids.user.as_ref() == Some(&bounds.user))?;
    require(ScopedId::Run, is_bound(&bounds.run, &ids.run))?;
    require(ScopedId::Job, is_bound(&bounds.job, &ids.job))?;
    require(ScopedId::Project, is_bound(&bounds.project, &ids.project))?;
    // A lease for another user's project is of no use, also if the project was given away since.
    let project = bounds.project.as_ref().and_then(|project| facts.projects.get(project));
    if project.is_some_and(|owner| !bounds.includes_owner(owner.as_deref())) {
        return Err(Denial::MismatchedId(ScopedId::Project));
    }
    match &bounds.task {
        Some(task) => check_ids_of_task(bounds, task, ids, facts),
        None => check_ids_of_user(bounds, ids, facts),
    }
}

/// Denies a call that names anything but one task and what belongs to it.
fn check_ids_of_task(bounds: &Bounds, task: &String, ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let own = facts.tasks.get(task);
    // Token or lease for another user's task: denied regardless of the ids.
    if own.is_some_and(|own| !bounds.includes_owner(own.user.as_deref())) {
        return Err(Denial::MismatchedId(ScopedId::User));
    }
    let project = own.and_then(|task| task.project.as_ref());
    if own.is_some() && bounds.project.is_some() && bounds.project.as_ref() != project {
        return Err(Denial::MismatchedId(ScopedId::Project));
    }
    let require = |id: ScopedId, is_own: bool| match ids.get(id) {
        Some(_) if !is_own => Err(Denial::MismatchedId(id)),
        _ => Ok(()),
    };
    let job = ids.job.as_ref().and_then(|job| facts.jobs.get(job));
    let run = ids.run.as_ref().and_then(|run| facts.runs.get(run));
    require(ScopedId::Task, ids.task.as_ref() == Some(task))?;
    require(ScopedId::Project, project.is_some() && ids.project.as_ref() == project)?;
    require(ScopedId::Job, job == Some(task))?;
    require(ScopedId::Run, run.is_some_and(|tasks| tasks.contains(task)))
}

/// Denies a call that names a task or project of another user. Built-in tools look up what is not in `facts`,
/// and check it themselves.
fn check_ids_of_user(bounds: &Bounds, ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let is_within = |task: &String| {
        facts.tasks.get(task).is_none_or(|task| {
            bounds.includes_owner(task.user.as_deref())
                && (bounds.project.is_none() || task.project == bounds.project)
        })
    };
    if ids.task.as_ref().is_some_and(|task| !is_within(task)) {
        return Err(Denial::MismatchedId(ScopedId::Task));
    }
    let job = ids.job.as_ref().and_then(|job| facts.jobs.get(job));
    if job.is_some_and(|task| !is_within(task)) {
        return Err(Denial::MismatchedId(ScopedId::Job));
    }
    let run = ids.run.as_ref().and_then(|run| facts.runs.get(run));
    if run.is_some_and(|tasks| !tasks.iter().any(is_within)) {
        return Err(Denial::MismatchedId(ScopedId::Run));
    }
    let project = ids.project.as_ref().and_then(|project| facts.projects.get(project));
    if project.is_some_and(|owner| !bounds.includes_owner(owner.as_deref())) {
        return Err(Denial::MismatchedId(ScopedId::Project));
    }
    Ok(())
}
