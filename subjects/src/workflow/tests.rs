use super::*;

fn job(name: &str, depends_on: &[&str]) -> Step {
    Step {
        name: name.to_owned(),
        description: String::new(),
        kind: StepKind::Job,
        script: Some("make test".to_owned()),
        files: Vec::new(),
        artifacts: Vec::new(),
        outputs: Vec::new(),
        network: Vec::new(),
        seconds: None,
        criteria: Vec::new(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        needs_approval: false,
    }
}

fn manager(description: &str) -> Step {
    let description = description.to_owned();
    Step { kind: StepKind::Manager, script: None, description, ..job("decide", &[]) }
}

fn file(path: &str, text: &str) -> StepFile {
    StepFile { path: path.to_owned(), text: text.to_owned() }
}

fn refusal(steps: &[Step]) -> String {
    check_steps(steps).expect_err("refused").to_string()
}

#[test]
fn steps_that_depend_on_each_other_in_any_order_are_accepted() {
    let steps = [job("report", &["build", "test"]), job("test", &["build"]), job("build", &[])];
    assert_eq!(check_steps(&steps), Ok(()));
    assert_eq!(check_steps(&[manager("Choose a name.")]), Ok(()));
}

#[test]
fn steps_are_refused_with_what_is_wrong() {
    assert!(refusal(&[]).contains("at least one"));
    let many: Vec<Step> = (0..=MAX_STEPS).map(|number| job(&format!("s{number}"), &[])).collect();
    assert!(refusal(&many).contains("at most 50"));
    assert!(refusal(&[job("a", &[]), job("a", &[])]).contains("two steps are called `a`"));
    assert!(refusal(&[job("a", &["b"])]).contains("depends on `b`, which is not a step"));
    assert!(refusal(&[job("a", &["a"])]).contains("depends on itself"));
    let circle = [job("first", &[]), job("a", &["c", "first"]), job("b", &["a"]), job("c", &["b"])];
    assert_eq!(refusal(&circle), "the dependencies of `a`, `b`, `c` form a circle");
}

#[test]
fn step_is_refused_with_its_name_and_what_is_wrong() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for name in ["", "two words", "a/b", long.as_str()] {
        assert!(refusal(&[job(name, &[])]).contains("is not a name of a step"), "{name}");
    }
    let list = |count: usize| vec!["x".to_owned(); count];
    for (step, why) in [
        (Step { script: None, ..job("a", &[]) }, "a job needs a script"),
        (Step { script: Some(" \n".to_owned()), ..job("a", &[]) }, "the script is empty"),
        (Step { script: Some("x".repeat(MAX_SCRIPT_BYTES + 1)), ..job("a", &[]) }, "more than 65536 bytes"),
        (Step { description: "x".repeat(MAX_TEXT_BYTES + 1), ..job("a", &[]) }, "description has more than"),
        (Step { seconds: Some(0), ..job("a", &[]) }, "seconds lies outside"),
        (Step { criteria: vec![" ".to_owned()], ..job("a", &[]) }, "a criterion is empty"),
        (Step { criteria: list(MAX_CRITERIA + 1), ..job("a", &[]) }, "criteria are too many"),
        (Step { outputs: list(MAX_STEP_FILES + 1), ..job("a", &[]) }, "outputs are too many"),
        (Step { network: vec![String::new()], ..job("a", &[]) }, "an item of network is empty"),
        (Step { files: vec![file("../x", "")], ..job("a", &[]) }, "`../x` is not the path of a file"),
        (Step { files: vec![file("/etc/x", "")], ..job("a", &[]) }, "is not the path of a file"),
        (Step { files: vec![file("x", ""), file("x", "")], ..job("a", &[]) }, "names `x` twice"),
        (
            Step { files: vec![file("x", &"x".repeat(MAX_FILES_BYTES + 1))], ..job("a", &[]) },
            "at most 262144",
        ),
        (manager(" "), "needs a description"),
        (Step { script: Some("ls".to_owned()), ..manager("Look.") }, "a manager runs no script"),
        (Step { outputs: list(1), ..manager("Look.") }, "a manager's step has no outputs"),
        (Step { files: vec![file("x", "")], ..manager("Look.") }, "a manager's step has no files"),
    ] {
        let said = refusal(std::slice::from_ref(&step));
        assert!(said.starts_with(&format!("step `{}`: ", step.name)) && said.contains(why), "{said}: {why}");
    }
}

#[test]
fn given_steps_have_known_fields_only() {
    let read = |text: &str| {
        let given: serde_json::Value = serde_json::from_str(text).unwrap();
        deserialize_given_steps(given).map_err(|error| error.to_string())
    };
    let whole = serde_json::to_value([Step {
        files: vec![file("a", "b")],
        artifacts: vec!["*".to_owned()],
        outputs: vec!["*".to_owned()],
        network: vec!["example.com".to_owned()],
        seconds: Some(1),
        criteria: vec!["it runs".to_owned()],
        needs_approval: true,
        ..job("a", &["b"])
    }])
    .unwrap();
    let fields: Vec<&String> = whole[0].as_object().unwrap().keys().collect();
    let known = |known: &[&str]| known.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(fields.into_iter().cloned().collect::<BTreeSet<_>>(), known(&given::STEP_FIELDS));
    let fields: Vec<&String> = whole[0]["files"][0].as_object().unwrap().keys().collect();
    assert_eq!(fields.into_iter().cloned().collect::<BTreeSet<_>>(), known(&given::FILE_FIELDS));
    assert_eq!(read(&whole.to_string()).map(|steps| steps.len()), Ok(1));

    let typo = read(r#"[{ "name": "a", "kind": "job", "scirpt": "true" }]"#).unwrap_err();
    assert!(typo.starts_with("step `a`: unknown field `scirpt`, expected one of `name`, "), "{typo}");
    let nameless = read(r#"[{ "nmae": "a", "kind": "job" }]"#).unwrap_err();
    assert!(nameless.starts_with("step 1: unknown field `nmae`"), "{nameless}");
    let inner = r#"[{ "name": "a", "kind": "job", "files": [{ "path": "x", "txt": "" }] }]"#;
    assert!(read(inner).unwrap_err().contains("files: unknown field `txt`"));
    assert!(read(r#"[{ "name": "a" }]"#).unwrap_err().contains("missing field `kind`"));
    assert!(read("[7]").unwrap_err().contains("invalid type"));
    // A message may have more, of a newer version.
    assert!(serde_json::from_str::<Step>(r#"{ "name": "a", "kind": "job", "of_later": 1 }"#).is_ok());
}
