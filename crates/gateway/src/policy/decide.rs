use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    Bound, Caller, Denial, Effect, Facts, Named, Rule, ScopedId, Standing, TaskFacts, Tool, allowlist,
    tool::Origin, urls,
};

/// The proof that a call was decided upon. It can be made nowhere else, and running a tool takes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    caller: Caller,
    tool: String,
    named: Named,
}

impl Permitted {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn tool(&self) -> &str {
        &self.tool
    }

    pub fn named(&self) -> &Named {
        &self.named
    }
}

/// Decides about one call. What cannot be resolved is a denial (M117).
pub fn decide(
    standing: &Standing,
    tool: Option<&Tool>,
    rules: &[Rule],
    arguments: &Map<String, Value>,
    facts: &Facts,
) -> Result<Permitted, Denial> {
    let (caller, tool) = may_see(standing, tool)?;
    if let Some(rule) = super::rules::first(rules, caller, &tool.name, arguments)
        && rule.effect == Effect::Deny
    {
        return Err(Denial::Rule(rule.id.clone()));
    }
    let named = Named::read(arguments)?;
    if let Some(missing) = tool.needs.iter().find(|id| named.get(**id).is_none()) {
        return Err(Denial::MissingId(*missing));
    }
    if tool.origin != Origin::Own {
        ids_resolve(&named, facts)?;
    }
    ids_agree(&named, facts)?;
    if let Some(bound) = caller.agent.bound() {
        ids_are_within(bound, &named, facts)?;
    }
    if let Some(argument) = urls::forbidden(&tool.name, arguments) {
        return Err(Denial::ForbiddenAddress(argument));
    }
    Ok(Permitted { caller: caller.clone(), tool: tool.name.clone(), named })
}

/// The part of the decision that does not depend on arguments: what an agent can see is what it may call at all.
pub fn may_see<'a>(standing: &'a Standing, tool: Option<&'a Tool>) -> Result<(&'a Caller, &'a Tool), Denial> {
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
    if let (Origin::Installed { owner: Some(owner) }, Some(bound)) = (&tool.origin, caller.agent.bound())
        && *owner != bound.user
    {
        return Err(Denial::NotYours);
    }
    match &tool.gate {
        Some(gate) if !gate.open => Err(Denial::SettingOff(gate.setting)),
        _ => Ok((caller, tool)),
    }
}

/// An id that the store does not know ties an upstream call to nothing, whoever makes it (M106, M117). The gateway's own
/// tools look ids up themselves, and some of them bring new ones in.
fn ids_resolve(named: &Named, facts: &Facts) -> Result<(), Denial> {
    let is_known = |id: ScopedId, text: &String| match id {
        ScopedId::Task => facts.tasks.contains_key(text),
        ScopedId::Run => facts.runs.contains_key(text),
        ScopedId::Job => facts.jobs.contains_key(text),
        ScopedId::Project => facts.projects.contains(text),
        // There is no list of users. A user is held against the task that is named with it.
        ScopedId::User => true,
    };
    let given = [
        (ScopedId::Task, &named.task),
        (ScopedId::Run, &named.run),
        (ScopedId::Job, &named.job),
        (ScopedId::Project, &named.project),
    ];
    for (id, text) in given {
        if text.as_ref().is_some_and(|text| !is_known(id, text)) {
            return Err(Denial::MismatchedId(id));
        }
    }
    Ok(())
}

/// A call that names two ids which do not belong together is wrong whoever makes it (M106). What is not known is left to
/// [`ids_resolve`].
fn ids_agree(named: &Named, facts: &Facts) -> Result<(), Denial> {
    let mut tasks: Option<BTreeSet<&String>> = named.task.as_ref().map(|task| BTreeSet::from([task]));
    let job = named.job.as_ref().and_then(|job| facts.jobs.get(job)).map(|task| BTreeSet::from([task]));
    let run = named.run.as_ref().and_then(|run| facts.runs.get(run)).map(|tasks| tasks.iter().collect());
    for (id, owners) in [(ScopedId::Job, job), (ScopedId::Run, run)] {
        tasks = match (tasks, owners) {
            (Some(tasks), Some(owners)) => Some(&tasks & &owners),
            (tasks, owners) => tasks.or(owners),
        };
        if tasks.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(Denial::MismatchedId(id));
        }
    }
    // User and project are those of a task that the call is about.
    let about: Vec<&TaskFacts> =
        tasks.into_iter().flatten().filter_map(|task| facts.tasks.get(task)).collect();
    if about.is_empty() {
        return Ok(());
    }
    let project_fits = |task: &&TaskFacts| named.project.is_none() || task.project == named.project;
    let user_fits = |task: &&TaskFacts| named.user.is_none() || task.user == named.user;
    let of_project: Vec<&TaskFacts> = about.into_iter().filter(project_fits).collect();
    match of_project.iter().find(|task| user_fits(task)) {
        Some(_) => Ok(()),
        None if of_project.is_empty() => Err(Denial::MismatchedId(ScopedId::Project)),
        None => Err(Denial::MismatchedId(ScopedId::User)),
    }
}

/// A bound token names nothing but its own user, its own task and what belongs to that (M106).
fn ids_are_within(bound: &Bound, named: &Named, facts: &Facts) -> Result<(), Denial> {
    let own = facts.tasks.get(&bound.task);
    // A token for a task of another user is worth nothing, whatever it names.
    if let Some(owner) = own.and_then(|task| task.user.as_ref())
        && *owner != bound.user
    {
        return Err(Denial::MismatchedId(ScopedId::User));
    }
    let within = |id: ScopedId, is_own: bool| match named.get(id) {
        Some(_) if !is_own => Err(Denial::MismatchedId(id)),
        _ => Ok(()),
    };
    let project = own.and_then(|task| task.project.as_ref());
    let job = named.job.as_ref().and_then(|job| facts.jobs.get(job));
    let run = named.run.as_ref().and_then(|run| facts.runs.get(run));
    within(ScopedId::Task, named.task.as_ref() == Some(&bound.task))?;
    within(ScopedId::User, named.user.as_ref() == Some(&bound.user))?;
    within(ScopedId::Project, project.is_some() && named.project.as_ref() == project)?;
    within(ScopedId::Job, job == Some(&bound.task))?;
    within(ScopedId::Run, run.is_some_and(|tasks| tasks.contains(&bound.task)))
}
