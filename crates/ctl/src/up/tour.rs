//! The tour of `cynodectl up`, which needs no terminal: a plan by chat, tasks in the store, a schedule, a
//! verification, a job in a sandbox, an installed server, a worker that is killed, a dead letter that is
//! replayed, a goal that is done. Every step is checked, and a failed check fails the tour.

mod goal;

use std::time::Duration;

use broker::Broker;
use contract::{ToolContract, finding, task};
use nix::sys::signal::Signal;
use serde_json::json;
use subjects::{
    Answer, ChatMessage, ChatRole, Completion, Encoding, ErrorCode, Event, FindingsStatus, HandoffId,
    Progress, Schedule, SchedulePayloadType, Scope, ScopeId, Status, TaskChangeKind, Timestamp, Work,
};

use super::{
    api, child,
    config::{NODE, StackConfig},
    seed,
    stack::Stack,
};
use crate::{
    answer,
    chat::Tasks,
    cli, dead,
    error::{Error, Exit},
    gateway::leases::HandoffLeases,
    handoff, journal,
    listener::{AnswerListener, Update},
    print, status,
};

const PLAN: &str = "Plan the tasks: write the texts, design the pages, publish the site";
const TASK: &str = "Create a task: water the plants every Monday";
/// The command is one that the offline model plans as a job.
const NIGHTLY: &str = "Look for broken links with `find . -xtype l`";
const QUESTION: &str = "What is left to do?";
const COUNT: &str = "Use words.count_words: paint it all blue";
/// What the analyst finds.
const REPORT: &str = "The site is not up yet.";
const RUN_TESTS: &str = "Run python3 -m unittest -v";
/// The repository, by path.
const REPOSITORY: [(&str, &str); 2] = [
    ("links.py", "def is_local(link):\n    return link.startswith('/')\n"),
    (
        "test_links.py",
        "import unittest\nfrom links import is_local\n\n\nclass Links(unittest.TestCase):\n    \
         def test_link_of_the_site_is_local(self):\n        self.assertTrue(is_local('/about'))\n",
    ),
];
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Shorter than the response time of the offline model.
const MISSED_DEADLINE: Duration = Duration::from_millis(100);

/// Runs the tour. The answers of a real model are not known in advance, so with one only the steps that do
/// not depend on them are run.
pub(super) async fn show(
    broker: &Broker,
    tools: &Tasks,
    stack: &Stack,
    config: &StackConfig,
) -> Result<Exit, Error> {
    let tour = Tour { broker, tools, stack, leases: seed::handoff_leases(config)? };
    status::run(broker, &config.gateway_link(), false).await?;
    if config.has_model() {
        return tour.with_real_model().await;
    }
    // First, since workers keep their list of tools for a while.
    seed::install_server(config).await?;
    tour.plan_by_chat().await?;
    tour.schedule(config).await?;
    let task = tour.tasks_in_the_store().await?;
    tour.verify(task.clone()).await?;
    tour.run_in_a_sandbox(&task).await?;
    tour.use_an_installed_server().await?;
    over_the_api(config).await?;
    tour.kill_owner().await?;
    tour.replay_a_dead_letter().await?;
    tour.reach_a_goal(config).await?;
    print::line("\nThat was the tour. `make run` in a terminal lets you talk to the manager yourself.");
    Ok(Exit::Done)
}

/// Asks the manager as any OpenAI client does.
async fn over_the_api(config: &StackConfig) -> Result<(), Error> {
    heading("The same manager, over the OpenAI-compatible API");
    print::line(&format!("POST {}/chat/completions: {QUESTION}", config.api_url()));
    let answer = api::ask(config, QUESTION).await?;
    print::line(&answer);
    expect(answer.contains("`collect-the-texts`"), "the answer over the API names a task of the project")
}

struct Tour<'a> {
    broker: &'a Broker,
    tools: &'a Tasks,
    stack: &'a Stack,
    leases: HandoffLeases,
}

impl Tour<'_> {
    /// A model may be too small for its work. Then the tour says so; only what the stack does wrong fails it.
    async fn with_real_model(&self) -> Result<Exit, Error> {
        heading("A task, by chat");
        print::line(&format!("you> {TASK}"));
        self.by_the_model(chat(TASK)).await?;
        heading("A schedule fires");
        self.by_the_model(schedule()?).await?;
        heading("The tasks in the gateway's store");
        self.tools.show(Some(&seed::project()?)).await?;
        print::line(
            "\nThat was the part of the tour that needs no offline model. Run it in a terminal to chat.",
        );
        Ok(Exit::Done)
    }

    /// Hands off work that should create a task, and says what the store has afterwards.
    async fn by_the_model(&self, work: Work) -> Result<(), Error> {
        let project = seed::project()?;
        let before = self.tools.list(Some(&project)).await?.len();
        let found = self.hand_off(work, None).await?.wait_for_answer(self.broker, ANSWER_TIMEOUT).await?;
        answer::show(&found, false);
        let Answer::Completion(answer) = found else {
            return Err(Error::Tour("the answer is not a completion".to_owned()));
        };
        let code = answer.error.as_ref().map(|error| error.code);
        expect(
            matches!(code, None | Some(ErrorCode::InferenceFailed | ErrorCode::BudgetExceeded)),
            "the model answers, well or badly",
        )?;
        let created = self.tools.list(Some(&project)).await?.len().saturating_sub(before);
        print::line(&match (created, answer.status) {
            (0, Status::NeedsClarification) => {
                "The store has no new task: the model asked a question.".into()
            }
            (0, _) => "The store has no new task: this model did not manage to create one.".into(),
            (1, _) => "The store has one new task.".to_owned(),
            (created, _) => format!("The store has {created} new tasks."),
        });
        Ok(())
    }

    async fn plan_by_chat(&self) -> Result<(), Error> {
        heading("A plan, by chat");
        print::line(&format!("you> {PLAN}"));
        let answer = self.completed(chat(PLAN)).await?;
        expect(answer.tasks.len() == 3, "the plan creates three tasks")
    }

    async fn schedule(&self, config: &StackConfig) -> Result<(), Error> {
        heading("A schedule fires");
        let answer = self.completed(schedule()?).await?;
        let created = answer.tasks.into_iter().find(|task| task.change == TaskChangeKind::Created);
        let none = || Error::Tour("expected that the schedule creates a task".to_owned());
        let task = created.ok_or_else(none)?.task_id;
        if self.has_workflows() { self.follow(config, &task).await } else { Ok(()) }
    }

    /// Returns the id of a planned task.
    async fn tasks_in_the_store(&self) -> Result<String, Error> {
        heading("The tasks in the gateway's store");
        let project = seed::project()?;
        self.tools.show(Some(&project)).await?;
        let tasks = self.tools.list(Some(&project)).await?;
        let planned = tasks.into_iter().find(|task| task.name.contains("publish"));
        let missing = || Error::Tour("the planned tasks are not in the store".to_owned());
        planned.map(|task| task.task_id).ok_or_else(missing)
    }

    /// Has the manager ask an analyst for a verification, whose findings are recorded and applied.
    async fn verify(&self, task: String) -> Result<(), Error> {
        heading("An analyst verifies one of them, and the manager applies what it found");
        let task_id: ScopeId = task.parse().map_err(Error::nats)?;
        let wanted = [
            ("db.task.update", json!({ "task_id": task, "acceptance_criteria": ["the site is up"] })),
            ("artifact.put", json!({ "task_id": task, "path": "status.md", "content": REPORT })),
        ];
        for (tool, arguments) in wanted {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            self.tools.call_named(tool, arguments, None).await?;
        }
        let list = finding::List {
            task_id: task_id.clone(),
            run_id: None,
            verdict: None,
            limit: None,
            cursor: None,
        };
        // A tour of an earlier start may have recorded some.
        let before = self.tools.call(&list, None).await?.items.len();
        let text = format!("Verify {task}");
        print::line(&format!("you> {text}"));
        let answer = self.completed(chat(&text)).await?;
        let found = answer.verifications.first().map(|verification| verification.status);
        expect(found == Some(Some(FindingsStatus::Fail)), "the analyst finds that the criterion is not met")?;
        let recorded = self.tools.call(&list, None).await?.items;
        expect(recorded.len() == before + 1, "its finding is in the store")?;
        let tasks = self.tools.list(Some(&seed::project()?)).await?;
        let remedy = tasks.iter().find(|it| it.parent_task_id.as_deref() == Some(task_id.as_str()));
        let owner = Some(self.leases.user.as_str());
        expect(
            remedy.is_some_and(|remedy| remedy.user_id.as_deref() == owner),
            "the manager made a task of it, which belongs to you",
        )
    }

    /// Has the manager run the tests of a repository on a node, if there is one.
    async fn run_in_a_sandbox(&self, task: &str) -> Result<(), Error> {
        heading("The manager runs tests in a sandbox");
        if self.stack.pid(NODE).is_none() {
            print::line("This machine cannot sandbox, so there is no node, and jobs would wait.");
            return Ok(());
        }
        for (path, content) in REPOSITORY {
            let file = json!({ "task_id": task, "path": path, "content": content });
            let file = file.as_object().cloned().unwrap_or_default();
            self.tools.call_named("artifact.put", file, None).await?;
        }
        print::line(&format!("you> {RUN_TESTS}"));
        let task_id: ScopeId = task.parse().map_err(Error::nats)?;
        let scope = Scope { task_id: Some(task_id), ..self.scope()? };
        let answer = completed(self.hand_off_in(scope, chat(RUN_TESTS), None).await?, self.broker).await?;
        let said = answer.message.map(|message| message.content).unwrap_or_default();
        expect(said.contains("test_link_of_the_site_is_local"), "the answer has the end of the job's log")
    }

    /// Uses a tool of an MCP server that was installed behind the gateway.
    async fn use_an_installed_server(&self) -> Result<(), Error> {
        heading("A tool of an MCP server that you installed");
        print::line(&format!("you> {COUNT}"));
        let answer = self.completed(chat(COUNT)).await?;
        let said = answer.message.map(|message| message.content).unwrap_or_default();
        expect(said.contains("4 words"), "the tool of the installed server is called")
    }

    /// Kills the owner of a handoff after its first tool call and checks that another worker resumes it.
    async fn kill_owner(&self) -> Result<(), Error> {
        heading("A worker is killed in the middle");
        let text = "Create a task: tell everybody about the new site";
        print::line(&format!("you> {text}"));
        let mut listener = self.hand_off(chat(text), None).await?;
        let id = listener.id();
        let mut killed = None;
        let found = loop {
            match listener.next(self.broker).await? {
                Update::Event(event) if killed.is_none() && has_created(&event) => {
                    let name = event.instance.to_string();
                    let Some(pid) = self.stack.pid(&name) else { continue };
                    child::signal(pid, Signal::SIGKILL);
                    print::line(&format!("  kill -9 {name}, which has just created it"));
                    killed = Some(name);
                }
                Update::Answer(found) => break *found,
                Update::Event(_) | Update::Delta(_) | Update::Nothing => {}
            }
        };
        answer::show(&found, false);
        print::line("");
        journal::run(self.broker, cli::Journal::Show { handoff: id, follow: false }, false).await?;
        let Answer::Completion(answer) = found else {
            return Err(Error::Tour("the answer is not a completion".to_owned()));
        };
        expect(killed.is_some(), "a worker was killed")?;
        // Perhaps the one that was started in its place, under the same name.
        expect(answer.attempts == 2, "another worker resumed it")?;
        expect(answer.tasks.len() == 1, "the task was created once")
    }

    async fn replay_a_dead_letter(&self) -> Result<(), Error> {
        heading("A handoff misses its deadline, and gets another chance");
        let listener = self.hand_off(chat("List tasks"), Some(MISSED_DEADLINE)).await?;
        let missed = listener.wait_for_answer(self.broker, ANSWER_TIMEOUT).await?;
        answer::show(&missed, false);
        let letters = operate::dead::list(self.broker, 1, |_| true).await?.letters;
        dead::run(self.broker, cli::Dead::Ls { limit: 5, kind: None, reason: None }, false).await?;
        let letter = letters.first().ok_or_else(|| Error::Tour("there is no dead letter".to_owned()))?;
        let replayed = operate::dead::replay(self.broker, letter, None).await?;
        let id = replayed.id.ok_or_else(|| Error::Tour("the replay has no id".to_owned()))?;
        print::line(&format!("replayed {} as {id}", letter.number));
        let listener = AnswerListener::start(self.broker, &[letter.about.kind], id).await?;
        let answered = listener.wait_for_answer(self.broker, ANSWER_TIMEOUT).await?;
        answer::show(&answered, false);
        expect(answer::exit(&answered) == Exit::Done, "the replay is answered")
    }

    async fn completed(&self, work: Work) -> Result<Completion, Error> {
        completed(self.hand_off(work, None).await?, self.broker).await
    }

    async fn hand_off(&self, work: Work, within: Option<Duration>) -> Result<AnswerListener, Error> {
        self.hand_off_in(self.scope()?, work, within).await
    }

    fn scope(&self) -> Result<Scope, Error> {
        let user_id = Some(self.leases.user.clone());
        Ok(Scope { user_id, project_id: Some(seed::project()?), ..Scope::default() })
    }

    async fn hand_off_in(
        &self,
        scope: Scope,
        work: Work,
        within: Option<Duration>,
    ) -> Result<AnswerListener, Error> {
        let handoff = handoff::new(work, scope, within);
        let lease = self.leases.issue_for(&handoff).await?;
        handoff::submit(self.broker, &handoff, Encoding::Json, None, Some(&lease)).await
    }
}

async fn completed(listener: AnswerListener, broker: &Broker) -> Result<Completion, Error> {
    let found = listener.wait_for_answer(broker, ANSWER_TIMEOUT).await?;
    answer::show(&found, false);
    match found {
        Answer::Completion(answer) if answer.status == Status::Completed => Ok(answer),
        other => Err(Error::Tour(format!("{} was not completed", other.handoff_id()))),
    }
}

fn chat(text: &str) -> Work {
    handoff::chat(vec![ChatMessage { role: ChatRole::User, content: text.to_owned() }], false)
}

fn schedule() -> Result<Work, Error> {
    let schedule = Schedule {
        schedule_id: "nightly".parse().map_err(Error::nats)?,
        run_id: format!("run-{}", HandoffId::now()).parse().map_err(Error::nats)?,
        fired_at: Timestamp::now(),
        payload_type: SchedulePayloadType::Prompt,
        payload: NIGHTLY.into(),
    };
    Ok(Work::Schedule(schedule))
}

/// Returns whether the task was created; the handoff is not answered yet then.
fn has_created(event: &Event) -> bool {
    event.progress == Progress::Called && event.name.as_deref() == Some(task::Create::NAME)
}

fn heading(text: &str) {
    print::line(&format!("\n=== {text}"));
}

fn expect(condition: bool, what: &str) -> Result<(), Error> {
    if condition { Ok(()) } else { Err(Error::Tour(format!("expected that {what}"))) }
}
