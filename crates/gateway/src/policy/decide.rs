use serde_json::{Map, Value};

use super::{
    Bound, Caller, Denial, Effect, Facts, Named, Rule, ScopedId, Standing, Tool, allowlist, tool::Origin,
    urls,
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
    ids_agree(&named, facts)?;
    if let Some(bound) = caller.agent.bound() {
        ids_are_within(bound, &named, facts)?;
    }
    if let Some(argument) = urls::forbidden(&tool.name, arguments) {
        return Err(Denial::ForbiddenAddress(argument.to_owned()));
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

/// A call that names two ids which do not belong together is wrong whoever makes it (M106).
fn ids_agree(named: &Named, facts: &Facts) -> Result<(), Denial> {
    let task = named.task.as_deref();
    let belongs = |owner: Option<&String>| match (task, owner) {
        (Some(task), Some(owner)) => owner == task,
        _ => true,
    };
    if !belongs(named.job.as_ref().and_then(|job| facts.jobs.get(job))) {
        return Err(Denial::MismatchedId(ScopedId::Job));
    }
    if !belongs(named.run.as_ref().and_then(|run| facts.runs.get(run))) {
        return Err(Denial::MismatchedId(ScopedId::Run));
    }
    Ok(())
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
    let within = |id: ScopedId, owner: Option<&String>, wanted: Option<&String>| match (named.get(id), owner)
    {
        (None, _) => Ok(()),
        (Some(_), Some(owner)) if Some(owner) == wanted => Ok(()),
        (Some(_), _) => Err(Denial::MismatchedId(id)),
    };
    within(ScopedId::Task, named.task.as_ref(), Some(&bound.task))?;
    within(ScopedId::User, named.user.as_ref(), Some(&bound.user))?;
    within(ScopedId::Project, named.project.as_ref(), own.and_then(|task| task.project.as_ref()))?;
    within(ScopedId::Job, named.job.as_ref().and_then(|job| facts.jobs.get(job)), Some(&bound.task))?;
    within(ScopedId::Run, named.run.as_ref().and_then(|run| facts.runs.get(run)), Some(&bound.task))
}
