//! The outcome of each kind of handoff.

use serde_json::{Value, json};
use subjects::{
    Act, Completion, Continue, ErrorCode, Evidence, Findings, FindingsStatus, Handoff, HandoffId, Plan,
    PlannedState, Status, Stop, TaskChangeKind, Verdict, Verify, Work,
};
use testkit::{
    Answer, Gateway, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker, chat, handoff, schedule,
    typical, verify,
};

fn any() -> Value {
    json!({ "type": "object" })
}

/// A task store with the tools that a worker uses.
fn store() -> Vec<Tool> {
    let create = json!({ "type": "object", "properties": {
        "name": {}, "description": {}, "acceptance_criteria": {}, "order": {}, "depends_on": {},
        "project_id": {},
    }});
    vec![
        Tool::new("db.task.create", "Creates a task.", create, |arguments| {
            let name = arguments["name"].as_str().unwrap();
            match name {
                "unwanted" => Answer::error("that name is taken"),
                _ => Answer::task(&format!("id-of-{name}"), name, &[]),
            }
        }),
        Tool::new("db.task.get", "Reads a task.", any(), |arguments| {
            let id = arguments["task_id"].as_str().unwrap();
            Answer::task(id, "deploy-docs-2", &["it was published"])
        }),
        Tool::new("workflow.start", "Starts the workflow of a task.", any(), |_| Answer::text("started")),
        Tool::new("artifact.list", "Lists artifacts of a task.", any(), |_| {
            Answer::structured(json!({ "items": [{
                "artifact_id": "a-1", "task_id": "deploy-docs-2", "run_id": null, "path": "logs/deploy.txt",
                "media_type": "text/plain", "size": 18, "sha256": "", "version": 1,
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            }] }))
        }),
        Tool::new("artifact.get", "Reads an artifact.", any(), |_| Answer::text("published in 212 s")),
        Tool::new("db.finding.create", "Records a finding.", any(), |_| Answer::text("recorded")),
    ]
}

async fn completion(orchestrator: &Orchestrator, question: &Handoff) -> Completion {
    let id = orchestrator.publish(question).await;
    orchestrator.completion(question.kind(), id).await
}

async fn findings(orchestrator: &Orchestrator, question: &Handoff) -> Findings {
    let id = orchestrator.publish(question).await;
    match orchestrator.wait_for_answer(question.kind(), id).await {
        subjects::Answer::Findings(findings) => findings,
        other => panic!("{other:?}"),
    }
}

fn plan(goal: &str) -> Handoff {
    let criteria = vec!["The site shows the pages".to_owned()];
    let mut handoff = handoff(Work::Plan(Plan {
        goal: goal.to_owned(),
        acceptance_criteria: criteria,
        constraints: vec!["No new server".to_owned()],
        task_id: None,
    }));
    handoff.scope.project_id = Some("p-1".parse().unwrap());
    handoff
}

/// G4: a plan becomes tasks, in order, with names, criteria and dependencies; the trace records the
/// steps.
#[tokio::test]
async fn a_plan_becomes_tasks() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start([Script::say("unused")]).await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = completion(&orchestrator, &plan("Publish the documentation")).await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Completed, Stop::GoalMet), "{answer:?}");
    let created: Vec<_> = gateway.calls().into_iter().filter(|call| call.name == "db.task.create").collect();
    let names: Vec<_> = created.iter().map(|call| call.arguments["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["build-docs", "publish-docs"]);
    assert_eq!(created[0].arguments["acceptance_criteria"], json!(["The build passes"]));
    assert_eq!(created[1].arguments["depends_on"], json!(["id-of-build-docs"]));
    assert_eq!((&created[0].arguments["order"], &created[1].arguments["order"]), (&json!(1), &json!(2)));
    assert_eq!(created[0].arguments["project_id"], "p-1");
    let tasks: Vec<_> = answer.tasks.iter().map(|task| (task.task_id.to_string(), task.change)).collect();
    let made = TaskChangeKind::Created;
    assert_eq!(tasks, [("id-of-build-docs".to_owned(), made), ("id-of-publish-docs".to_owned(), made)]);
    let planned: Vec<_> = answer.trace.plan.iter().map(|step| (step.name.as_str(), step.state)).collect();
    assert_eq!(planned, [("build-docs", PlannedState::Done), ("publish-docs", PlannedState::Done)]);
    assert!(answer.trace.input.is_some());
    let asked = model.asked();
    let planning = asked.iter().find(|asked| asked.form() == Some("plan")).unwrap();
    let goal = planning.messages()[1]["content"].as_str().unwrap();
    assert!(
        goal.contains("Publish the documentation")
            && goal.contains("The site shows the pages")
            && goal.contains("No new server"),
        "{goal}"
    );
}

#[tokio::test]
async fn plan_that_fails_halfway_reports_the_created_tasks() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| {
        let mut thought = typical(asked.form().unwrap());
        if asked.form() == Some("plan") {
            thought["steps"][1]["name"] = json!("unwanted");
            let mut third = thought["steps"][0].clone();
            third["name"] = json!("announce");
            thought["steps"].as_array_mut().unwrap().push(third);
        }
        Script::Say(thought.to_string())
    })
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = completion(&orchestrator, &plan("Publish the documentation")).await;
    assert_eq!(answer.error.as_ref().map(|error| error.code), Some(ErrorCode::ToolFailed), "{answer:?}");
    assert!(answer.error.as_ref().unwrap().message.contains("that name is taken"));
    let states: Vec<_> = answer.trace.plan.iter().map(|step| step.state).collect();
    assert_eq!(states, [PlannedState::Done, PlannedState::Failed, PlannedState::NotStarted]);
    assert_eq!(answer.tasks.len(), 1, "created tasks are reported");
}

/// Structured output that does not match its schema is returned to the model once, with the error; a second
/// mismatch fails the handoff.
#[tokio::test]
async fn invalid_structured_output_is_repaired_once() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let asks_again = |asked: &ModelRequest| asked.messages().len() > 3;
    let model =
        Model::start_with_structured([Script::say("unused")], move |asked: &ModelRequest| {
            match asked.form() {
                Some("plan") if !asks_again(asked) => Script::say("Here is your plan: build, then publish."),
                Some(form) => Script::Say(typical(form).to_string()),
                None => unreachable!(),
            }
        })
        .await;
    let manager = Worker::manager(&nats).asking(&model).start().await;
    let answer = completion(&orchestrator, &plan("Publish")).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    let thinks: Vec<_> = answer.trace.steps.iter().filter(|step| step.act == Act::Think).collect();
    assert_eq!(thinks.len(), 3, "the assessment, the plan, the plan again");
    assert!(
        thinks
            .iter()
            .any(|it| it.detail.as_ref().is_some_and(|it| it.contains("asked again: there is no JSON"))),
        "{thinks:?}"
    );
    assert_eq!(answer.usage.prompt_tokens, 300, "every request is counted");
    assert!(answer.message.unwrap().content.contains("no tool for that is offered here"));
    drop(manager);

    let model =
        Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| match asked.form() {
            Some("plan") => Script::say(r#"{"summary": "s", "steps": [], "question": null}"#),
            Some(form) => Script::Say(typical(form).to_string()),
            None => unreachable!(),
        })
        .await;
    let _manager = Worker::manager(&nats).asking(&model).start().await;
    let answer = completion(&orchestrator, &plan("Publish")).await;
    let error = answer.error.unwrap();
    assert_eq!((error.code, answer.trace.stop), (ErrorCode::InferenceFailed, Stop::InferenceFailure));
    assert!(error.message.contains("at least one step"), "{}", error.message);
}

/// A question ends the handoff with its own status; a `continue` resumes from the transcript.
#[tokio::test]
async fn continue_resumes_from_the_transcript() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start([
        Script::call("db__task__get", &json!({ "task_id": "t-7" })),
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::say("Staging it is."),
    ])
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let first = completion(&orchestrator, &chat("Deploy the site of task t-7")).await;
    assert_eq!(
        (first.status, first.trace.stop),
        (Status::NeedsClarification, Stop::NeedsClarification),
        "{first:?}"
    );
    assert_eq!(first.message.as_ref().unwrap().content, "Which site is meant?");
    assert_eq!(first.error, None);
    let go_on = |continues: HandoffId| handoff(Work::Continue(Continue::new(continues, "staging")));
    let second = completion(&orchestrator, &go_on(first.handoff_id)).await;
    assert_eq!(
        (second.status, second.message.unwrap().content.as_str()),
        (Status::Completed, "Staging it is.")
    );
    let asked = model.turns().pop().unwrap();
    let roles: Vec<&str> = asked.messages().iter().filter_map(|it| it["role"].as_str()).collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool", "assistant", "user"],
        "the complete transcript"
    );
    assert_eq!(asked.messages()[5]["content"], "staging");
}

/// The answer to a question is sent with instructions and options of its own, which hold from then on.
#[tokio::test]
async fn continue_has_instructions_and_options_as_a_chat() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start([
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::call("ask_user", &json!({ "question": "When?" })),
        Script::say("Staging it is."),
    ])
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let first = completion(&orchestrator, &chat("Deploy the site of task t-7")).await;
    let go_on = |continues: HandoffId, input: &str| {
        handoff(Work::Continue(Continue {
            instructions: Some("Be brief.".to_owned()),
            temperature: Some(1.5),
            max_tokens: std::num::NonZeroU32::new(77),
            ..Continue::new(continues, input)
        }))
    };
    let second = completion(&orchestrator, &go_on(first.handoff_id, "staging")).await;
    let third = completion(&orchestrator, &go_on(second.handoff_id, "now")).await;
    assert_eq!(third.message.unwrap().content, "Staging it is.");
    let asked = model.turns();
    let said = |turn: usize| -> Vec<String> {
        let messages = asked[turn].messages().iter().skip(1).filter(|it| it["role"] == "user");
        messages.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
    };
    // Messages of the user that follow each other are sent as one.
    let answered = "(Note sent with the request)\nBe brief.\n\nstaging";
    assert_eq!(said(1)[1..], [answered]);
    assert_eq!(said(2)[1..], [answered, "now"], "the same instructions are not repeated");
    for turn in &asked[1..] {
        let limit = turn.body.get("max_tokens").or(turn.body.get("max_completion_tokens"));
        assert_eq!((&turn.body["temperature"], limit), (&json!(1.5), Some(&json!(77))), "{:?}", turn.body);
    }
    assert_ne!(asked[0].body["temperature"], json!(1.5));
}

#[tokio::test]
async fn a_plan_can_be_clarified_too() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| {
        let mut thought = typical(asked.form().unwrap());
        let is_clear =
            asked.messages().iter().any(|message| message["content"].to_string().contains("the public one"));
        if asked.form() == Some("plan") && !is_clear {
            thought["question"] = json!("The public or the internal site?");
        }
        Script::Say(thought.to_string())
    })
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = plan("Publish the documentation");
    let first = completion(&orchestrator, &asked).await;
    assert_eq!(first.status, Status::NeedsClarification, "{first:?}");
    assert!(
        gateway.calls().iter().all(|call| call.name != "db.task.create"),
        "no tool is called before the clarification"
    );
    let input = "the public one".to_owned();
    let second = handoff(Work::Continue(Continue::new(first.handoff_id, input)));
    let second = completion(&orchestrator, &Handoff { scope: asked.scope, ..second }).await;
    assert_eq!((second.status, second.tasks.len()), (Status::Completed, 2), "{second:?}");
}

/// An analyst reads the task and its artifacts, judges each criterion with evidence, records the findings,
/// and touches no other task.
#[tokio::test]
async fn an_analyst_judges_each_criterion() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let model = Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| {
        let mut thought = typical("judgement");
        let question = asked.messages().last().unwrap()["content"].as_str().unwrap();
        if question.contains("within a minute") {
            thought["verdict"] = json!("not_met");
            thought["severity"] = json!("major");
            thought["recommended_action"] = json!("Split the build.");
        }
        Script::Say(thought.to_string())
    })
    .await;
    let _analyst = Worker::analyst(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = verify("deploy-docs-2");
    if let Work::Verify(Verify { acceptance_criteria, evidence, .. }) = &mut question.work {
        *acceptance_criteria =
            vec!["It was published".to_owned(), "It took place within a minute".to_owned()];
        evidence.push(Evidence { label: "note".to_owned(), content: "212 s".to_owned() });
    }
    let found = findings(&orchestrator, &question).await;
    assert_eq!((found.status, found.error.as_ref()), (FindingsStatus::Fail, None), "{found:?}");
    let verdicts: Vec<_> = found.findings.iter().map(|it| (it.criterion.as_str(), it.verdict)).collect();
    assert_eq!(
        verdicts,
        [("It was published", Verdict::Met), ("It took place within a minute", Verdict::NotMet)]
    );
    assert!(found.findings.iter().all(|finding| finding.evidence.is_some() && finding.location.is_some()));
    assert_eq!(found.recommended_actions, ["Split the build."]);
    let calls = gateway.calls();
    let recorded: Vec<_> = calls.iter().filter(|call| call.name == "db.finding.create").collect();
    assert_eq!(recorded.len(), 2);
    assert!(calls.iter().all(|call| call.arguments["task_id"] == "deploy-docs-2"), "{calls:?}");
    let material = model.asked()[0].messages()[1]["content"].as_str().unwrap().to_owned();
    assert!(material.contains("published in 212 s") && material.contains("[note]"), "{material}");

    // A handoff that names two tasks is refused, not guessed at.
    let mut confused = verify("deploy-docs-2");
    confused.scope.task_id = Some("another".parse().unwrap());
    let found = findings(&orchestrator, &confused).await;
    assert_eq!(found.error.map(|error| error.code), Some(ErrorCode::InvalidHandoff));
    assert_eq!(found.status, FindingsStatus::NeedsClarification);
}

/// The zero-configuration demo: the offline model drives real tools, for every kind.
#[tokio::test]
async fn the_offline_model_drives_real_tools() {
    let nats = Nats::start();
    let gateway = Gateway::start(store()).await;
    let _manager = Worker::manager(&nats).calling(&gateway).start().await;
    let _analyst = Worker::analyst(&nats).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = completion(&orchestrator, &chat("Create a task: write the release notes")).await;
    assert_eq!(answer.tasks[0].task_id.to_string(), "id-of-write-the-release-notes", "{answer:?}");
    let asking = completion(&orchestrator, &chat("create a task")).await;
    assert_eq!(asking.status, Status::NeedsClarification, "{asking:?}");
    let answer = completion(&orchestrator, &plan("Build the pages, then publish them")).await;
    assert_eq!(answer.tasks.len(), 2, "{answer:?}");
    let answer = completion(&orchestrator, &schedule("Check the links.")).await;
    assert_eq!(answer.tasks.len(), 1, "{answer:?}");
    let mut question = verify("deploy-docs-2");
    if let Work::Verify(Verify { acceptance_criteria, .. }) = &mut question.work {
        *acceptance_criteria = vec!["it was published".to_owned(), "nobody noticed".to_owned()];
    }
    let found = findings(&orchestrator, &question).await;
    let verdicts: Vec<_> = found.findings.iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Met, Verdict::Unclear], "{found:?}");
    assert_eq!(found.status, FindingsStatus::NeedsClarification);
    orchestrator.wait_until_settled().await;
}
