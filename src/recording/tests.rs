use serde_json::Map;
use subjects::Role;

use super::*;

fn allowlist() -> Allowlist {
    Allowlist::for_role(Role::ProjectManager)
}

fn catalogue(names: &[&str]) -> Catalogue {
    let tool = |name: &&str| ToolInfo {
        name: (*name).to_owned(),
        title: String::new(),
        description: "Helps.".to_owned(),
        input_schema: Map::new(),
        only_reads: true,
    };
    Catalogue::new(allowlist(), names.iter().map(tool))
}

fn handoff(number: u128) -> HandoffEffects {
    HandoffEffects::new(uuid::Uuid::from_u128(number).to_string().parse().unwrap())
}

/// Of a lease of this user with these tools.
fn asked(user: &str, tools: &[&str]) -> Value {
    json!([user, tools, null])
}

fn names(recording: &Recording, of: &HandoffEffects, asked: &Value) -> Result<Vec<String>, CallError> {
    let listed = recording.recorded_catalogue(of, asked)?;
    Ok(listed.tools().map(|tool| tool.name.clone()).collect())
}

fn write(path: &Path, lists: &[(u128, Value, &[&str])]) {
    let Recording::Writing(writer) = Recording::write_to(path).unwrap() else { panic!("it writes") };
    for (number, asked, names) in lists {
        writer.write_catalogue(&handoff(*number), asked, &catalogue(names));
    }
}

fn read(path: &Path) -> Recording {
    Recording::read(path, allowlist()).unwrap()
}

/// G2: a lease with fewer tools lists other tools, so another request is recorded.
#[test]
fn each_handoff_is_replayed_with_the_tools_that_it_was_offered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.jsonl");
    let (ada, guest) = (asked("ada", &["help.*"]), asked("ada", &["help.list"]));
    let (all, few): (&[&str], &[&str]) = (&["help.get", "help.list"], &["help.list"]);
    write(
        &path,
        &[(1, ada.clone(), all), (2, guest.clone(), few), (3, ada.clone(), all), (4, ada.clone(), few)],
    );
    let recording = read(&path);
    assert_eq!(names(&recording, &handoff(1), &ada).unwrap(), all);
    assert_eq!(names(&recording, &handoff(2), &guest).unwrap(), few);
    assert_eq!(names(&recording, &handoff(4), &ada).unwrap(), few, "they have changed meanwhile");
    assert_eq!(names(&recording, &handoff(9), &guest).unwrap(), few, "another id, the same lease");
    assert!(matches!(names(&recording, &handoff(9), &asked("bob", &[])), Err(CallError::NotRecorded(_))));
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.matches(&format!("\"effect\":\"{CATALOGUE} ")).count(), 2, "each list once: {lines}");
}

/// Recordings of earlier versions have one list for all.
#[test]
fn recording_of_one_list_has_it_for_all_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.jsonl");
    let tools = json!(catalogue(&["help.list"]).tools().collect::<Vec<_>>());
    let line = Line { handoff: None, effect: CATALOGUE.to_owned(), repeat: 0, ms: 0, value: tools };
    std::fs::write(&path, format!("{}\n", json!(line))).unwrap();
    assert_eq!(names(&read(&path), &handoff(1), &asked("ada", &[])).unwrap(), ["help.list"]);
    std::fs::write(&path, "").unwrap();
    assert_eq!(names(&read(&path), &handoff(1), &asked("ada", &[])).unwrap(), [""; 0]);
}

/// A worker may be killed while it writes. The rest of what it recorded can be replayed.
#[test]
fn last_line_that_is_cut_off_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.jsonl");
    let ada = asked("ada", &[]);
    write(&path, &[(1, ada.clone(), &["help.list"])]);
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"handoff\":nu")).unwrap();
    assert_eq!(names(&read(&path), &handoff(1), &ada).unwrap(), ["help.list"]);
    drop(Recording::write_to(&path).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "it is cut off before more is written");
    std::fs::write(&path, format!("{{\"handoff\":nu\n{whole}")).unwrap();
    let refused = Recording::read(&path, allowlist()).unwrap_err().to_string();
    assert!(refused.contains("line 1") && refused.contains("remove it"), "{refused}");
}
