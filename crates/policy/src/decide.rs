//! The decision whether a call is permitted, and the proof of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    CallIds, Caller, Denial, Effect, Facts, Rule, ScopedId, Standing, TaskFacts, TokenBinding, Tool,
    allowlist, tool::Origin, urls,
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
    let (caller, tool) = check_visible(standing, tool)?;
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
    if let Some(binding) = caller.agent.binding() {
        check_ids_within_binding(binding, &ids, facts)?;
    }
    if let Some(argument) = urls::find_forbidden(&tool.name, arguments) {
        return Err(Denial::ForbiddenAddress(argument));
    }
    Ok(Permitted { caller: caller.clone(), tool: tool.name.clone(), ids })
}

/// Makes the part of the decision that does not depend on the arguments. An agent sees exactly the tools that
/// pass.
pub fn check_visible<'a>(
    standing: &'a Standing,
    tool: Option<&'a Tool>,
) -> Result<(&'a Caller, &'a Tool), Denial> {
    let caller = match standing {
        Standing::Valid(caller) => caller,
        Standing::Expired(_) => return Err(Denial::ExpiredToken),
        Standing::Revoked(_) => return Err(Denial::RevokedToken),
        Standing::Unknown => return Err(Denial::UnknownToken),
    };
    let tool = tool.ok_or(Denial::UnknownTool)?;
    let kind = caller.agent.kind();
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
    if let (Origin::Installed { owner: Some(owner) }, Some(binding)) = (&tool.origin, caller.agent.binding())
        && *owner != binding.user
    {
        return Err(Denial::NotYours);
    }
    match &tool.gate {
        Some(gate) if !gate.open => Err(Denial::SettingOff(gate.setting)),
        _ => Ok((caller, tool)),
    }
}

/// Denies an upstream call that names an id unknown to the store, for every agent type (M106, M117). Built-in
/// tools look ids up themselves, and some of them create new ones.
fn check_ids_known(ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let is_known = |id: ScopedId, text: &String| match id {
        ScopedId::Task => facts.tasks.contains_key(text),
        ScopedId::Run => facts.runs.contains_key(text),
        ScopedId::Job => facts.jobs.contains_key(text),
        ScopedId::Project => facts.projects.contains(text),
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

/// Denies a call with a bound token that names anything but its user, its task and what belongs to that task
/// (M106).
fn check_ids_within_binding(binding: &TokenBinding, ids: &CallIds, facts: &Facts) -> Result<(), Denial> {
    let own = facts.tasks.get(&binding.task);
    // A token bound to another user's task is denied regardless of the ids.
    if let Some(owner) = own.and_then(|task| task.user.as_ref())
        && *owner != binding.user
    {
        return Err(Denial::MismatchedId(ScopedId::User));
    }
    let require = |id: ScopedId, is_own: bool| match ids.get(id) {
        Some(_) if !is_own => Err(Denial::MismatchedId(id)),
        _ => Ok(()),
    };
    let project = own.and_then(|task| task.project.as_ref());
    let job = ids.job.as_ref().and_then(|job| facts.jobs.get(job));
    let run = ids.run.as_ref().and_then(|run| facts.runs.get(run));
    require(ScopedId::Task, ids.task.as_ref() == Some(&binding.task))?;
    require(ScopedId::User, ids.user.as_ref() == Some(&binding.user))?;
    require(ScopedId::Project, project.is_some() && ids.project.as_ref() == project)?;
    require(ScopedId::Job, job == Some(&binding.task))?;
    require(ScopedId::Run, run.is_some_and(|tasks| tasks.contains(&binding.task)))
}
