//! The steps of a task, and the workflows that managers start.

use serde_json::{Value, json};
use subjects::{
    Completion, Continue, Encoding, Handoff, Kind, Plan, PlannedState, Status, Work, workflow::StepKind,
};
use testkit::{
    Answer, Gateway, GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker, chat,
    handoff, schedule, typical,
};

fn any() -> Value {
    json!({ "type": "object" })
}

fn tools() -> Vec<Tool> {
    let task = |arguments: &serde_json::Map<String, Value>| {
        let id = arguments["task_id"].as_str().unwrap();
        Answer::task(id, "convert-table", &["Every row is an object"])
    };
    vec![
        Tool::new("db.task.get", "Reads a task.", any(), task).read_only(),
        Tool::new("db.task.create", "Creates a task.", any(), |arguments| {
            let name = arguments["name"].as_str().unwrap();
            Answer::task(&format!("id-of-{name}"), name, &[])
        }),
        Tool::new("artifact.list", "Lists artifacts of a task.", any(), |_| {
            Answer::structured(json!({ "items": [{
                "artifact_id": "a-1", "task_id": "t-1", "run_id": null, "path": "table.csv",
                "media_type": "text/csv", "size": 18, "sha256": "", "version": 1,
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            }] }))
        })
        .read_only(),
    ]
}

fn start_tool(answer: fn(&str) -> Answer) -> Tool {
    Tool::new("workflow.start", "Starts the workflow of a task.", any(), move |arguments| {
        answer(arguments["task_id"].as_str().unwrap())
    })
}

fn plan_of(task: Option<&str>, goal: &str) -> Handoff {
    handoff(Work::Plan(Plan {
        goal: goal.to_owned(),
        acceptance_criteria: vec![],
        constraints: vec![],
        task_id: task.map(|task| task.parse().unwrap()),
    }))
}

async fn completion(orchestrator: &Orchestrator, question: &Handoff) -> Completion {
    orchestrator.publish(question).await;
    orchestrator.completion(question.kind(), question.id).await
}

/// A plan that names a task gives its steps and creates no task, in both encodings and both ways of asking.
#[tokio::test]
async fn plan_of_a_task_gives_its_steps_and_creates_no_task() {
    for (tool_mode, encoding) in [("native", Encoding::MessagePack), ("typed", Encoding::Json)] {
        let (nats, gateway) = (Nats::start(), Gateway::start(tools()).await);
        let model = Model::start([Script::say("unused")]).await;
        let manager = Worker::manager(&nats).asking(&model).calling(&gateway);
        let _manager = manager.set("inference.tool_mode", tool_mode).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let asked = plan_of(Some("t-1"), "Convert the table");
        orchestrator.publish_as(encoding, &asked).await;
        let answer = orchestrator.completion(Kind::Plan, asked.id).await;
        assert_eq!(answer.status, Status::Completed, "{answer:?}");
        let [build, look] = &answer.steps[..] else { panic!("{:?}", answer.steps) };
        assert_eq!((build.name.as_str(), build.kind), ("build", StepKind::Job));
        assert_eq!(build.script.as_deref(), Some("make site"));
        assert_eq!((build.files[0].path.as_str(), build.seconds), ("Makefile", Some(60)));
        assert_eq!((&build.artifacts[0], &build.outputs[0]), (&"**".to_owned(), &"site/**".to_owned()));
        assert_eq!((look.kind, look.depends_on.as_slice()), (StepKind::Manager, &["build".to_owned()][..]));
        assert!(look.needs_approval && !build.needs_approval);
        assert!(answer.tasks.is_empty() && answer.review.is_none());
        assert!(gateway.calls().iter().all(|call| call.name != "db.task.create"), "{:?}", gateway.calls());
        let planned: Vec<_> = answer.trace.plan.iter().map(|step| (step.name.as_str(), step.state)).collect();
        assert_eq!(planned, [("build", PlannedState::NotStarted), ("look", PlannedState::NotStarted)]);
        let [asked] = &model.asked()[..] else { panic!("one turn") };
        assert_eq!(asked.form(), Some("steps"));
        let goal = asked.messages()[1]["content"].as_str().unwrap();
        for part in ["Goal: Convert the table", "Every row is an object", "Artifact of the task: table.csv"] {
            assert!(goal.contains(part), "{part}: {goal}");
        }
    }
}

/// Steps that cannot be done are sent back to the model once, with what is wrong.
#[tokio::test]
async fn invalid_steps_are_sent_back_once() {
    let nats = Nats::start();
    let model = Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| {
        let mut thought = typical("steps");
        if asked.messages().len() < 4 {
            thought["steps"][0]["depends_on"] = json!(["look"]);
        }
        Script::Say(thought.to_string())
    })
    .await;
    let _manager = Worker::manager(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = completion(&orchestrator, &plan_of(Some("t-1"), "Publish")).await;
    assert_eq!(answer.steps.len(), 2, "{answer:?}");
    assert_eq!(model.asked().len(), 2);
    assert!(model.asked()[1].body["messages"].to_string().contains("`build`, `look` form a circle"));
}

/// A question about a task is answered by a `continue`, which plans the steps and creates no task either.
#[tokio::test]
async fn steps_can_be_clarified() {
    let (nats, gateway) = (Nats::start(), Gateway::start(tools()).await);
    let model = Model::start_with_structured([Script::say("unused")], |asked: &ModelRequest| {
        let mut thought = typical(asked.form().unwrap());
        if !asked.body["messages"].to_string().contains("the public one") {
            thought["question"] = json!("The public or the internal table?");
        }
        Script::Say(thought.to_string())
    })
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = completion(&orchestrator, &plan_of(Some("t-1"), "Convert the table")).await;
    assert_eq!((asked.status, asked.steps.len()), (Status::NeedsClarification, 0), "{asked:?}");
    assert_eq!(asked.resumes_task, Some("t-1".parse().unwrap()));
    let input = "the public one".to_owned();
    let next = handoff(Work::Continue(Continue::new(asked.handoff_id, input)));
    let answer = completion(&orchestrator, &next).await;
    assert_eq!((answer.status, answer.steps.len()), (Status::Completed, 2), "{answer:?}");
    assert!(gateway.calls().iter().all(|call| call.name != "db.task.create"));
}

/// The offline model makes jobs of the commands in a task, and makes none up.
#[tokio::test]
async fn offline_model_plans_the_commands_of_a_task() {
    let nats = Nats::start();
    let _manager = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut asked =
        plan_of(Some("t-1"), "Run `python3 convert.py` for `deploy-docs`\n```sh\nls\nwc -l *\n```");
    let Work::Plan(plan) = &mut asked.work else { panic!("a plan") };
    plan.acceptance_criteria = vec!["`make test` passes".to_owned()];
    let answer = completion(&orchestrator, &asked).await;
    let scripts: Vec<_> = answer.steps.iter().map(|step| step.script.clone().unwrap()).collect();
    assert_eq!(scripts, ["python3 convert.py", "ls\nwc -l *", "make test"], "{answer:?}");
    assert_eq!(answer.steps[2].criteria, ["`make test` passes"]);
    assert_eq!(answer.steps[1].depends_on, [answer.steps[0].name.clone()]);
    let answer = completion(&orchestrator, &plan_of(Some("t-1"), "Write the release notes")).await;
    let [step] = &answer.steps[..] else { panic!("{answer:?}") };
    assert_eq!((step.kind, step.description.as_str()), (StepKind::Manager, "Write the release notes"));
}

/// W7: the workflows of planned tasks are started, in order. The tasks stay if that is not possible.
#[tokio::test]
async fn plan_starts_the_workflows_of_its_tasks() {
    let started = start_tool(|task| Answer::text(format!("{task} is queued")));
    let refused = start_tool(|_| Answer::error("the task has no user"));
    for (start, said, starts) in [
        (Some(started), "Their workflows were started; each begins when the tasks before it are done.", 2),
        (Some(refused), "The workflow of `build-docs` was not started: the task has no user.", 1),
        (None, "The workflow of `build-docs` was not started: the gateway does not offer", 0),
    ] {
        let nats = Nats::start();
        let gateway = Gateway::start(tools().into_iter().chain(start).collect()).await;
        let model = Model::start([Script::say("unused")]).await;
        let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let answer = completion(&orchestrator, &plan_of(None, "Publish the documentation")).await;
        assert_eq!((answer.status, answer.tasks.len()), (Status::Completed, 2), "{answer:?}");
        let text = answer.message.unwrap().content;
        assert!(text.contains(said), "{text}");
        let calls = gateway.calls().into_iter().filter(|call| call.name == "workflow.start");
        let tasks: Vec<Value> = calls.map(|call| call.arguments["task_id"].clone()).collect();
        assert_eq!(tasks, ["id-of-build-docs", "id-of-publish-docs"][..starts]);
    }
}

#[tokio::test]
async fn schedule_without_the_tool_says_what_to_do() {
    let (nats, gateway) = (Nats::start(), Gateway::start(tools()).await);
    let model = Model::start([Script::say("unused")]).await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let answer = completion(&orchestrator, &schedule("Check the links.")).await;
    let text = answer.message.unwrap().content;
    assert!(text.contains("was created. Its workflow was not started"), "{text}");
    assert!(text.contains("then start it on the task's page of the console"), "{text}");
}

/// A goal given by chat becomes a task of the user, whose workflow waits for a runner.
#[tokio::test]
async fn chat_starts_the_workflow_of_a_goal() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let _manager = Worker::manager(&nats).calling_process(&gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = chat("Do: run `make test`");
    let lease = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": asked.id });
    orchestrator.publish_under(&asked, &gateway.lease(lease).await.1).await;
    let answer = orchestrator.completion(Kind::Chat, asked.id).await;
    let [created] = &answer.tasks[..] else { panic!("{answer:?}") };
    let client = gateway.agent(&gateway.manager().await);
    let get = json!({ "task_id": created.task_id });
    let workflow = gateway.call(&client, "workflow.get", get).await.unwrap().structured.unwrap();
    assert_eq!((&workflow["status"], &workflow["user_id"]), (&json!("queued"), &json!("ada")), "{workflow}");
    let text = answer.message.unwrap().content;
    assert!(text.contains("`workflow.start`") && text.contains("queued"), "{text}");
}
