//! `cynodectl skills`.

use std::{io::Read, path::Path};

use api::{PutSkill, Skill, SkillDetails, SkillFilter, SkillScope};
use serde_json::json;

use super::{ApiRequest, Gateway, cells, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::{NewSkill, SkillAt, Skills},
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Skills, json: bool) -> Result<Exit, Error> {
    match command {
        Skills::List { scope, scope_id, limit, offset } => {
            let filter =
                SkillFilter { scope, scope_id, name: None, limit: Some(limit), offset: Some(offset) };
            let found = list(gateway, &filter).await?;
            let head = ["NAME", "SCOPE", "SCOPE ID", "SIZE", "VERSION", "UPDATED", "BY", "ID"];
            let exit = print_list(&found, json, "no skills", &head, |skill| {
                cells!(skill, name, scope, scope_id, size, version, updated_at, updated_by, id)
            });
            if found.len() as u64 >= limit {
                let next = u64::from(offset) + found.len() as u64;
                print::note(&format!("there may be more; --offset {next} lists them"));
            }
            Ok(exit)
        }
        Skills::Show { skill, at, text } => {
            let id = find(gateway, &skill, at).await?;
            let details: SkillDetails = gateway.ask(ApiRequest::get(&["skills", &id])).await?;
            show(&details, text, json);
            Ok(Exit::Done)
        }
        Skills::Put(new) => put(gateway, new, json).await,
        Skills::Delete { skill, at, version, yes } => {
            if !yes && !print::confirm(&format!("delete {} and its text?", print::sanitize(&skill))) {
                return Err(Error::NotConfirmed);
            }
            let id = find(gateway, &skill, at).await?;
            let (path, expected) = (["skills", &id], json!({ "version": version }));
            let deleted: Skill = gateway.ask(ApiRequest::delete(&path).query(&expected)).await?;
            Ok(print_outcome(json, &deleted, &format!("{} ({}) deleted", deleted.name, deleted.id)))
        }
    }
}

async fn list(gateway: &Gateway, filter: &SkillFilter) -> Result<Vec<Skill>, Error> {
    gateway.ask(ApiRequest::get(&["skills"]).query(filter)).await
}

/// Returns the id of the skill with this name in its scope. What is no name is taken for an id; if it is none
/// either, the gateway rejects it.
async fn find(gateway: &Gateway, skill: &str, at: SkillAt) -> Result<String, Error> {
    let (scope, scope_id) = match (at.project, at.user) {
        (Some(project), _) => (SkillScope::Project, Some(project)),
        (None, Some(user)) => (SkillScope::User, Some(user)),
        (None, None) => (SkillScope::System, None),
    };
    let name = Some(skill.to_owned());
    let filter = SkillFilter { scope: Some(scope), scope_id, name, ..SkillFilter::default() };
    let found = list(gateway, &filter).await?.into_iter().next();
    Ok(found.map_or_else(|| skill.to_owned(), |found| found.id))
}

async fn put(gateway: &Gateway, new: NewSkill, json: bool) -> Result<Exit, Error> {
    let new = PutSkill {
        content: read_text(&new.file)?,
        name: new.name,
        user_id: new.at.user,
        project_id: new.at.project,
        description: new.description,
        version: new.version,
    };
    let skill: Skill = gateway.ask(ApiRequest::put(&["skills"]).body(&new)).await?;
    if json {
        print_json(&skill);
    } else {
        print_skill(&skill);
    }
    Ok(Exit::Done)
}

/// Reads a file, or standard input for `-`.
fn read_text(file: &Path) -> Result<String, Error> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file).map_err(|error| Error::File(file.to_owned(), error));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::Input)?;
    Ok(text)
}

fn show(details: &SkillDetails, text: bool, json: bool) {
    if json {
        print_json(details);
    } else if text {
        print::foreign_bytes(details.content.as_bytes());
    } else {
        print_skill(&details.skill);
        print::line(&format!("\n{}", print::sanitize(details.content.trim_end())));
    }
}

fn print_skill(skill: &Skill) {
    print_fields!(skill, id, name, scope, scope_id, description, read_only, size, version);
    print_fields!(skill, created_at, updated_at, updated_by);
}
