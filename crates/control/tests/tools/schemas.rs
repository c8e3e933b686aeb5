//! Descriptions, schemas and scopes of the built-in tools.

use policy::{Scope, Switch};
use std::collections::BTreeSet;

use serde_json::Value;

/// Models rely on descriptions: every tool describes its effect, its input and its output.
#[test]
fn every_tool_describes_itself() {
    let tools = control::all();
    let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), tools.len(), "names are unique");
    for tool in &tools {
        let name = tool.name;
        assert!(tool.description.len() > 20 && tool.description.ends_with('.'), "{name}");
        assert!(!tool.title.is_empty(), "{name}");
        assert_eq!(tool.input["type"], "object", "{name}");
        assert_eq!(tool.input["additionalProperties"], false, "{name}");
        assert_eq!(tool.output["type"], "object", "{name}");
        for schema in [&tool.input, &tool.output] {
            let schema = Value::Object(Clone::clone(schema));
            jsonschema::validator_for(&schema).unwrap();
            assert!(!schema.to_string().contains("$ref"), "{name}: models do not follow references");
        }
        let properties = tool.input.get("properties").and_then(Value::as_object);
        for id in tool.needs {
            let required = tool.input["required"].as_array().unwrap();
            assert!(required.iter().any(|name| name == id.argument()), "{name} needs {id}");
            assert!(properties.unwrap().contains_key(id.argument()));
        }
    }
}

/// P24: both tools for allowed images depend on the same system setting.
#[test]
fn every_tool_has_the_right_scope_and_gate() {
    for tool in control::all() {
        let for_all = tool.name.starts_with("artifact.")
            || tool.name.starts_with("help.")
            || matches!(tool.name, "skills.list" | "skills.get" | "lease.renew" | "lease.revoke");
        let expected = match tool.name {
            "sandbox.job.store" | "lease.bind" => Scope::Sandbox,
            _ if for_all => Scope::Both,
            _ => Scope::Pm,
        };
        assert_eq!(tool.scope, expected, "{}", tool.name);
        let gate = tool.name.starts_with("sandbox.allowed_images.").then_some(Switch::AgentsMayAddImages);
        assert_eq!(tool.gate, gate, "{}", tool.name);
        // G13: a tool that reaches the network has to say so, and none does.
        assert!(!tool.reaches_network, "{}", tool.name);
    }
}

#[test]
fn all_families_exist() {
    let names: BTreeSet<&str> = control::all().iter().map(|tool| tool.name).collect();
    let expected = "
        artifact.get artifact.list artifact.put
        db.finding.create db.finding.list
        db.job.create db.job.get db.job.update_status
        db.preference.create db.preference.delete db.preference.effective db.preference.get db.preference.list
        db.preference.update
        db.project.get db.project.list
        db.system_setting.create db.system_setting.delete db.system_setting.get db.system_setting.list
        db.system_setting.update
        db.task.create db.task.dependency.add db.task.dependency.list db.task.dependency.remove db.task.get
        db.task.list db.task.update db.task.update_status
        egress.begin egress.end egress.usage
        help.get help.list
        key.check
        lease.bind lease.issue lease.renew lease.revoke
        memory.delete memory.get memory.list memory.put memory.search
        model.get model.list node.get node.list persona.get persona.list
        sandbox.allowed_images.add sandbox.allowed_images.list
        sandbox.job.cancel sandbox.job.get sandbox.job.list sandbox.job.logs sandbox.job.store sandbox.run
        schedule.create schedule.delete schedule.fire schedule.get schedule.list schedule.preview
        schedule.run.end schedule.run.sent schedule.run.unsent schedule.run_now schedule.runs schedule.update
        skills.create skills.delete skills.get skills.list skills.update
        thread.delete thread.get thread.list thread.messages thread.rename
        thread.turn.begin thread.turn.cancel thread.turn.delivered thread.turn.end thread.turn.get
        thread.turn.leave thread.turn.sent thread.turn.unsent
        workflow.cancel workflow.checkpoint.delete workflow.checkpoint.get workflow.checkpoint.list
        workflow.checkpoint.put workflow.checkpoint.put_writes workflow.get workflow.handoff workflow.job
        workflow.lease.acquire workflow.lease.release workflow.lease.renew workflow.list workflow.pause
        workflow.resume workflow.retry workflow.start";
    assert_eq!(names, expected.split_whitespace().collect());
}
