//! The ids of the scope in tool calls: whom a call concerns follows from the lease and the scope of the
//! handoff, not from what a model writes.

use leased::HeldLease;
use policy::ScopedId;
use serde_json::{Map, Value};
use subjects::Scope;

use crate::tools::ToolInfo;

/// The ids of a handoff. A fixed id is part of the lease: a call cannot be about another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScopedIds {
    ids: Vec<KnownId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownId {
    id: ScopedId,
    value: String,
    is_fixed: bool,
}

impl ScopedIds {
    pub(super) fn new(scope: &Scope, lease: Option<&HeldLease>) -> Self {
        let lease = lease.map(|held| &held.lease);
        let text = |id: &Option<subjects::ScopeId>| id.as_ref().map(ToString::to_string);
        let known = [
            (ScopedId::User, lease.map(|lease| lease.user_id.clone()), text(&scope.user_id)),
            (ScopedId::Project, lease.and_then(|lease| lease.project_id.clone()), text(&scope.project_id)),
            (ScopedId::Task, lease.and_then(|lease| lease.task_id.clone()), None),
            (ScopedId::Run, lease.and_then(|lease| lease.run_id.clone()), None),
            (ScopedId::Job, lease.and_then(|lease| lease.job_id.clone()), None),
        ];
        let ids = known.into_iter().filter_map(|(id, fixed, usual)| {
            let is_fixed = fixed.is_some();
            Some(KnownId { id, value: fixed.or(usual)?, is_fixed })
        });
        Self { ids: ids.collect() }
    }

    /// Returns the id that the lease fixes, if it does: no call can be about another one.
    pub(super) fn fixed(&self, id: ScopedId) -> Option<&str> {
        let known = self.ids.iter().find(|known| known.id == id && known.is_fixed)?;
        Some(&known.value)
    }

    /// Sets the ids that a call of this tool takes. Returns a note about it for the model; an error
    /// if the call is about another task, run or job.
    pub(super) fn fill(
        &self,
        tool: &ToolInfo,
        arguments: &mut Map<String, Value>,
    ) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        for KnownId { id, value, is_fixed } in &self.ids {
            let name = id.argument();
            let given = arguments.get(name).filter(|given| !given.is_null());
            match given {
                Some(given) if !is_fixed || given == value.as_str() => {}
                Some(_) if matches!(id, ScopedId::Task | ScopedId::Run | ScopedId::Job) => {
                    return Err(format!("this is about {name} {value} alone; leave {name} out"));
                }
                Some(_) => {
                    notes.push(format!("{name} was set to {value}, on whose behalf this is done"));
                    arguments.insert(name.to_owned(), value.as_str().into());
                }
                None if takes(tool, name) => {
                    arguments.insert(name.to_owned(), value.as_str().into());
                }
                None => {}
            }
        }
        Ok(notes)
    }
}

/// Returns whether an id is filled into a call: if the tool requires it, or has an effect and takes it. A
/// filter of a tool that reads is left to the model. A skill belongs to a user or to a project, not to both.
fn takes(tool: &ToolInfo, name: &str) -> bool {
    let declares = |key: &str| tool.input_schema.get("properties")?.get(key);
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required = required.is_some_and(|required| required.iter().any(|it| it == name));
    let is_owned = !tool.only_reads && !tool.name.starts_with("skills.");
    declares(name).is_some() && (is_required || is_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("{value}") };
        object
    }

    fn tool(name: &str, only_reads: bool, schema: Value) -> ToolInfo {
        let input_schema = object(schema);
        let (name, title, description) = (name.into(), String::new(), String::new());
        ToolInfo { name, title, description, input_schema, only_reads }
    }

    fn ids(fixed: bool) -> ScopedIds {
        let known = |id, value: &str| KnownId { id, value: value.into(), is_fixed: fixed };
        ScopedIds { ids: vec![known(ScopedId::User, "ada"), known(ScopedId::Task, "t-1")] }
    }

    fn filled(ids: &ScopedIds, tool: &ToolInfo, arguments: Value) -> Result<(Value, usize), String> {
        let mut arguments = object(arguments);
        let notes = ids.fill(tool, &mut arguments)?;
        Ok((Value::Object(arguments), notes.len()))
    }

    #[test]
    fn ids_are_filled_in_corrected_or_refused() {
        let properties = json!({ "user_id": {}, "task_id": {}, "title": {} });
        let create = tool("db.task.create", false, json!({ "properties": properties }));
        let list = tool("db.task.list", true, json!({ "properties": properties }));
        let get = tool("db.task.get", true, json!({ "properties": properties, "required": ["task_id"] }));
        let other = tool("web.fetch", true, json!({ "properties": { "url": {} } }));
        let skill =
            tool("skills.create", false, json!({ "properties": { "user_id": {}, "project_id": {} } }));
        let fixed = ids(true);
        let all = json!({ "user_id": "ada", "task_id": "t-1" });
        assert_eq!(filled(&fixed, &create, json!({})), Ok((all.clone(), 0)));
        assert_eq!(filled(&fixed, &create, json!({ "user_id": "user123" })), Ok((all, 1)));
        assert_eq!(filled(&fixed, &list, json!({})), Ok((json!({}), 0)));
        assert_eq!(filled(&fixed, &get, json!({})), Ok((json!({ "task_id": "t-1" }), 0)));
        assert!(filled(&fixed, &get, json!({ "task_id": "t-2" })).unwrap_err().contains("task_id t-1 alone"));
        assert_eq!(filled(&fixed, &other, json!({})), Ok((json!({}), 0)));
        assert_eq!(filled(&fixed, &skill, json!({})), Ok((json!({}), 0)));
        assert_eq!((fixed.fixed(ScopedId::Task), fixed.fixed(ScopedId::Job)), (Some("t-1"), None));
        assert_eq!(ids(false).fixed(ScopedId::Task), None);
        // Without a lease, what the model says is left to the gateway.
        let named = json!({ "user_id": "eve", "task_id": "t-2" });
        assert_eq!(filled(&ids(false), &create, named.clone()), Ok((named, 0)));
    }
}
