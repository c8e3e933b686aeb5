//! The examples from which the golden vectors are generated.

use serde_json::{Value, json};
use subjects::{
    Act, Answer, Artifact, Assessment, Chat, ChatMessage, ChatRole, Completion, Context, Continue, Encoding,
    ErrorCode, Evidence, Failure, Finding, Findings, FindingsStatus, FinishReason, Handoff, HandoffId,
    InputType, Kind, MODEL_ID, Message, Plan, PlannedState, PlannedStep, Preference, PreferenceApplied,
    PreferenceScope, Project, Role, SCHEMA_VERSION, Schedule, SchedulePayloadType, Scope, ScopeId, Severity,
    Status, Step, StepOutcome, Stop, TaskChange, TaskChangeKind, Timestamp, ToolCall, Trace, Usage, Verdict,
    Verification, Verify, Work, WorkScope, job,
    workflow::{
        self, Decision, Issue, IssueSeverity, Review, ReviewDecision, StepFile, StepKind, StepResult,
    },
};

const ID: &str = "0193f2c0-5a00-7000-8000-00000000c0de";

fn id() -> HandoffId {
    ID.parse().unwrap()
}

fn scope_id(text: &str) -> ScopeId {
    text.parse().unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn handoff(work: Work) -> Handoff {
    Handoff {
        id: id(),
        issued_at: time("2026-11-14T10:00:00Z"),
        deadline: Some(time("2026-11-14T10:05:00Z")),
        reply_to: None,
        scope: Scope {
            user_id: Some(scope_id("user-7")),
            group_ids: vec![scope_id("group-1"), scope_id("group-2")],
            project_id: Some(scope_id("project-1")),
            thread_id: Some(scope_id("thread-9")),
            ..Scope::default()
        },
        replays: Vec::new(),
        context: Context {
            project: Some(Project {
                id: scope_id("project-1"),
                name: "Docs".into(),
                slug: Some("docs".into()),
                description: Some("The public documentation.".into()),
            }),
            task: None,
            preferences: Some(vec![Preference {
                key: "agents.project_manager.additional_context".into(),
                value: json!(["Answer in British English.", "Prefer short sentences."]),
                value_type: "string[]".into(),
                scope: PreferenceScope::User,
                scope_id: Some(scope_id("user-7")),
                version: 3,
            }]),
        },
        work,
    }
}

pub(crate) fn handoffs() -> Vec<(&'static str, Handoff)> {
    vec![
        (
            "handoff-chat",
            handoff(Work::Chat(Chat {
                model: MODEL_ID.into(),
                messages: vec![ChatMessage {
                    role: ChatRole::User,
                    content: "What is left to do for the release? ☂".into(),
                }],
                stream: true,
                temperature: Some(0.2),
                max_tokens: std::num::NonZeroU32::new(1024),
            })),
        ),
        (
            "handoff-schedule",
            handoff(Work::Schedule(Schedule {
                schedule_id: scope_id("nightly"),
                run_id: scope_id("run-42"),
                fired_at: time("2026-11-14T10:00:00Z"),
                payload_type: SchedulePayloadType::Prompt,
                payload: json!("Check the links of the documentation and open a task for each broken one."),
            })),
        ),
        (
            "handoff-plan",
            handoff(Work::Plan(Plan {
                goal: "Publish the documentation on every push to main".into(),
                acceptance_criteria: vec!["A push to main updates the site within ten minutes".into()],
                constraints: vec!["No new hosting provider".into()],
                task_id: None,
            })),
        ),
        (
            "handoff-continue",
            handoff(Work::Continue(Continue {
                stream: true,
                ..Continue::new(
                    "0193f2c0-5a00-7000-8000-00000000beef".parse().unwrap(),
                    "The staging environment, not production.",
                )
            })),
        ),
        (
            "handoff-continue-with-options",
            handoff(Work::Continue(Continue {
                stream: true,
                instructions: Some("Answer in one sentence.".into()),
                temperature: Some(0.2),
                max_tokens: std::num::NonZeroU32::new(1024),
                ..Continue::new(
                    "0193f2c0-5a00-7000-8000-00000000beef".parse().unwrap(),
                    "The staging environment, not production.",
                )
            })),
        ),
        (
            "handoff-plan-of-a-task",
            handoff(Work::Plan(Plan {
                goal: "Convert the table to JSON".into(),
                acceptance_criteria: vec!["table.json has one object for each row".into()],
                constraints: vec![],
                task_id: Some(scope_id("convert-table")),
            })),
        ),
        (
            "handoff-review",
            handoff(Work::Review(Box::new(Review {
                task_id: scope_id("convert-table"),
                step: workflow_step(),
                result: StepResult {
                    outcome: workflow::Outcome::Failed,
                    end: Some(job::End::Exited { code: 1 }),
                    exit_code: Some(1),
                    output_tail: Some("KeyError: 'name'\n".into()),
                    artifacts: vec!["log.txt".into()],
                    answer: None,
                    error: None,
                },
                criteria: vec!["table.json has one object for each row".into()],
                iteration: number(1),
                max_iterations: number(3),
            }))),
        ),
        (
            "handoff-verify",
            handoff(Work::Verify(Verify {
                task_id: scope_id("deploy-docs-2"),
                acceptance_criteria: vec!["A push to main updates the site within ten minutes".into()],
                artifacts: vec![Artifact {
                    artifact_id: scope_id("artifact-5"),
                    path: Some("logs/deploy.txt".into()),
                }],
                evidence: vec![Evidence { label: "deploy log".into(), content: "published in 212 s".into() }],
                policy: Some(json!({ "strictness": "high" })),
            })),
        ),
    ]
}

fn number(number: u32) -> std::num::NonZeroU32 {
    std::num::NonZeroU32::new(number).unwrap()
}

fn workflow_step() -> workflow::Step {
    workflow::Step {
        name: "convert".into(),
        description: "Convert the table to JSON.".into(),
        kind: StepKind::Job,
        script: Some("python3 convert.py table.csv table.json".into()),
        files: vec![StepFile { path: "convert.py".into(), text: "import csv, json, sys\n".into() }],
        artifacts: vec!["table.csv".into()],
        outputs: vec!["table.json".into()],
        network: vec!["example.org:443".into()],
        seconds: Some(120),
        criteria: vec!["table.json has one object for each row".into()],
        depends_on: vec!["fetch".into()],
        needs_approval: true,
    }
}

fn trace(stop: Stop, steps: Vec<Step>) -> Trace {
    Trace { steps, ..Trace::new("4bf92f3577b34da6a3ce929d0e0e4736", stop) }
}

fn step(index: u32, act: Act, name: &str) -> Step {
    Step { index, act, name: name.into(), outcome: StepOutcome::Ok, ms: 11, tries: 1, detail: None }
}

pub(crate) fn answers() -> Vec<(&'static str, Answer)> {
    let completion = Completion {
        schema_version: SCHEMA_VERSION,
        handoff_id: id(),
        kind: Kind::Chat,
        status: Status::Completed,
        message: Some(ChatMessage {
            role: ChatRole::Assistant,
            content: "One task is open: deploy-docs-2.".into(),
        }),
        finish_reason: FinishReason::Stop,
        tasks: vec![TaskChange { task_id: scope_id("deploy-docs-2"), change: TaskChangeKind::Created }],
        verifications: vec![],
        transcript: vec![],
        resumes_as: None,
        resumes_task: None,
        steps: vec![],
        review: None,
        usage: Usage {
            prompt_tokens: 812,
            completion_tokens: 34,
            model_calls: 2,
            tool_calls: 1,
            cost_usd: Some(0.0021),
        },
        trace: trace(
            Stop::GoalMet,
            vec![
                step(0, Act::Model, "offline"),
                step(1, Act::Tool, "db.task.create"),
                step(2, Act::Model, "offline"),
            ],
        ),
        attempts: 1,
        instance: "pma-7d1f3a9c2b40".parse().unwrap(),
        error: None,
    };
    let mut asking = Completion {
        status: Status::NeedsClarification,
        message: Some(ChatMessage { role: ChatRole::Assistant, content: "Which site is meant?".into() }),
        tasks: vec![],
        verifications: vec![Verification {
            handoff_id: id(),
            task_id: scope_id("deploy-docs-2"),
            status: Some(FindingsStatus::Pass),
            findings: vec![],
            error: None,
        }],
        transcript: vec![
            Message::user("Deploy the site"),
            Message::Assistant {
                content: String::new(),
                calls: vec![ToolCall {
                    id: "call_1".into(),
                    name: "db.project.list".into(),
                    arguments: "{}".into(),
                }],
            },
            Message::Tool {
                call_id: "call_1".into(),
                name: "db.project.list".into(),
                content: "docs, shop".into(),
            },
            Message::Assistant { content: "Which site is meant?".into(), calls: vec![] },
        ],
        trace: trace(Stop::NeedsClarification, vec![step(0, Act::Think, "offline")]),
        ..completion.clone()
    };
    asking.resumes_as = Some(Kind::Chat);
    asking.trace.profile = Some(Role::ProjectManager);
    asking.trace.input = Some(Assessment {
        input_type: InputType::QuickFix,
        scope: WorkScope::Small,
        estimated_files: Some(1),
        components: vec!["website".into()],
        reasons: vec!["one command deploys it".into()],
    });
    asking.trace.tools = vec!["db.project.list".into()];
    asking.trace.tool_words = [("db.project.list".to_owned(), vec!["website".to_owned()])].into();
    asking.trace.plan = vec![PlannedStep { name: "deploy".into(), state: PlannedState::NotStarted }];
    asking.trace.steps[0].tries = 2;
    asking.trace.steps[0].detail = Some("the first answer was not of the asked form".into());
    let failed = Completion {
        status: Status::Failed,
        message: None,
        finish_reason: FinishReason::Error,
        tasks: vec![],
        usage: Usage::default(),
        trace: trace(Stop::Refused, vec![]),
        error: Some(Failure::new(ErrorCode::NotForPma, "only model `cynodeai.pm` is the project manager's")),
        ..completion.clone()
    };
    let findings = Findings {
        schema_version: SCHEMA_VERSION,
        handoff_id: id(),
        kind: Kind::Verify,
        task_id: Some(scope_id("deploy-docs-2")),
        status: FindingsStatus::Fail,
        findings: vec![Finding {
            criterion: "A push to main updates the site within ten minutes".into(),
            verdict: Verdict::NotMet,
            severity: Severity::Major,
            evidence: Some("the log ends after 900 s without a publish step".into()),
            location: Some("logs/deploy.txt:118".into()),
        }],
        recommended_actions: vec!["Split the build from the publish step.".into()],
        preferences_applied: vec![PreferenceApplied {
            key: "agents.project_analyst.additional_context".into(),
            scope: PreferenceScope::Project,
            version: 2,
        }],
        usage: Usage::default(),
        trace: trace(Stop::GoalMet, vec![]),
        attempts: 2,
        instance: "pa-0c55e1d2a3b4".parse().unwrap(),
        error: None,
    };
    let planned = Completion {
        kind: Kind::Plan,
        message: Some(ChatMessage { role: ChatRole::Assistant, content: "One step: `convert`.".into() }),
        tasks: vec![],
        steps: vec![workflow::Step { depends_on: vec![], ..workflow_step() }],
        ..completion.clone()
    };
    let reviewed = Completion {
        kind: Kind::Review,
        message: Some(ChatMessage { role: ChatRole::Assistant, content: "`convert` is revised.".into() }),
        tasks: vec![],
        review: Some(Box::new(ReviewDecision {
            decision: Decision::Revise,
            reasons: vec!["The script reads a column that the table does not have.".into()],
            issues: vec![Issue {
                severity: IssueSeverity::Major,
                location: Some("convert.py:7".into()),
                problem: "It reads the column `name`.".into(),
                fix: "Read the column `title`.".into(),
            }],
            step: Some(workflow_step()),
            question: None,
        })),
        ..completion.clone()
    };
    vec![
        ("completion-completed", Answer::Completion(completion)),
        ("completion-needs-clarification", Answer::Completion(asking)),
        ("completion-failed", Answer::Completion(failed)),
        ("completion-steps", Answer::Completion(planned)),
        ("completion-review", Answer::Completion(reviewed)),
        ("findings-fail", Answer::Findings(findings)),
    ]
}

pub(crate) fn names() -> Vec<&'static str> {
    let handoffs = handoffs().into_iter().map(|(name, _)| name);
    handoffs.chain(answers().into_iter().map(|(name, _)| name)).collect()
}

/// Returns bodies that must be refused. Each differs from a valid body in one respect.
pub(crate) fn refused() -> Vec<(&'static str, Kind, String, ErrorCode)> {
    use ErrorCode::{InvalidHandoff, NotForPma, UnsupportedVersion};
    let good = |kind: Kind| -> Value {
        let (_, handoff) = handoffs().into_iter().find(|(_, handoff)| handoff.kind() == kind).unwrap();
        serde_json::from_slice(&handoff.encode(Encoding::Json).unwrap()).unwrap()
    };
    let with = |kind: Kind, pointer: &str, value: Value| {
        let mut body = good(kind);
        *body.pointer_mut(pointer).unwrap() = value;
        body.to_string()
    };
    let without = |kind: Kind, field: &str| {
        let mut body = good(kind);
        body.as_object_mut().unwrap().remove(field).unwrap();
        body.to_string()
    };
    let chat = Kind::Chat;
    let text = good(chat).to_string();
    vec![
        ("truncated", chat, text[..text.len() / 2].to_owned(), InvalidHandoff),
        ("empty", chat, String::new(), InvalidHandoff),
        ("not an object", chat, "[]".into(), InvalidHandoff),
        ("something after the end", chat, format!("{text}{{}}"), InvalidHandoff),
        ("a key twice", chat, text.replacen('{', r#"{"kind":"chat","#, 1), InvalidHandoff),
        ("too deep", chat, format!(r#"{{"x":{}{}}}"#, "[".repeat(100), "]".repeat(100)), InvalidHandoff),
        ("version from the future", chat, with(chat, "/schema_version", json!(2)), UnsupportedVersion),
        ("version as text", chat, with(chat, "/schema_version", json!("1")), InvalidHandoff),
        ("no version", chat, without(chat, "schema_version"), InvalidHandoff),
        ("no id", chat, without(chat, "handoff_id"), InvalidHandoff),
        (
            "nil id",
            chat,
            with(chat, "/handoff_id", json!("00000000-0000-0000-0000-000000000000")),
            InvalidHandoff,
        ),
        (
            "malformed id",
            chat,
            with(chat, "/handoff_id", json!("{0193f2c05a0070008000000000000c0de}")),
            InvalidHandoff,
        ),
        ("no time of issue", chat, without(chat, "issued_at"), InvalidHandoff),
        ("a time that is none", chat, with(chat, "/issued_at", json!("yesterday")), InvalidHandoff),
        ("no payload", chat, without(chat, "payload"), InvalidHandoff),
        ("another kind than the subject's", Kind::Plan, text.clone(), InvalidHandoff),
        ("an empty scope id", chat, with(chat, "/scope/user_id", json!("")), InvalidHandoff),
        ("a wrong-typed field", chat, with(chat, "/payload/messages", json!("hello")), InvalidHandoff),
        ("no messages", chat, with(chat, "/payload/messages", json!([])), InvalidHandoff),
        ("too hot", chat, with(chat, "/payload/temperature", json!(2.5)), InvalidHandoff),
        ("another model", chat, with(chat, "/payload/model", json!("gpt-oss")), NotForPma),
        (
            "a model that only looks like it",
            chat,
            with(chat, "/payload/model", json!("cynodeai.pm ")),
            NotForPma,
        ),
        (
            "a job spec",
            Kind::Schedule,
            with(Kind::Schedule, "/payload/payload_type", json!("job_spec")),
            NotForPma,
        ),
        ("an empty goal", Kind::Plan, with(Kind::Plan, "/payload/goal", json!(" ")), InvalidHandoff),
        (
            "a review of a job without a script",
            Kind::Review,
            with(Kind::Review, "/payload/step/script", Value::Null),
            InvalidHandoff,
        ),
        (
            "a review after the last one",
            Kind::Review,
            with(Kind::Review, "/payload/iteration", json!(4)),
            InvalidHandoff,
        ),
        (
            "a review that is not the first",
            Kind::Review,
            with(Kind::Review, "/payload/iteration", json!(0)),
            InvalidHandoff,
        ),
        (
            "an empty criterion of a review",
            Kind::Review,
            with(Kind::Review, "/payload/criteria", json!([" "])),
            InvalidHandoff,
        ),
        (
            "itself continued",
            Kind::Continue,
            with(Kind::Continue, "/payload/continues", json!(ID)),
            InvalidHandoff,
        ),
    ]
}

/// Returns a key derived from fixed bytes, so that the vector is reproducible. Not used for anything else.
pub(crate) fn signing_key() -> nkeys::KeyPair {
    nkeys::KeyPair::new_from_raw(nkeys::KeyPairType::User, [7; 32]).unwrap()
}
