//! The tour of `cynodectl up`, which needs no terminal: a plan by chat, tasks in the store, a schedule, a
//! verification, a worker that is killed, a dead letter that is replayed. Every step is checked, and a failed
//! check fails the tour.

use std::time::Duration;

use broker::Broker;
use contract::{ToolContract, task};
use nix::sys::signal::Signal;
use subjects::{
    Answer, ChatMessage, ChatRole, Completion, Encoding, Event, FindingsStatus, HandoffId, Progress,
    Schedule, SchedulePayloadType, Scope, Status, Timestamp, Verify, Work,
};

use super::{child, seed, stack::Stack};
use crate::{
    answer,
    chat::Tasks,
    cli, dead,
    error::{Error, Exit},
    handoff, journal,
    listener::{AnswerListener, Update},
    print, status,
};

const PLAN: &str = "Plan the tasks: write the texts, design the pages, publish the site";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Shorter than the response time of the offline model.
const MISSED_DEADLINE: Duration = Duration::from_millis(100);

/// Runs the tour. The answers of a real model are not known in advance, so with one only the steps that do
/// not depend on them are run.
pub(super) async fn show(
    broker: &Broker,
    tools: &Tasks,
    stack: &Stack,
    has_model: bool,
) -> Result<Exit, Error> {
    let tour = Tour { broker, tools, stack };
    status::run(broker, false).await?;
    if has_model {
        return tour.with_real_model().await;
    }
    tour.plan_by_chat().await?;
    tour.schedule().await?;
    let task = tour.tasks_in_the_store().await?;
    tour.verify(task).await?;
    tour.kill_owner().await?;
    tour.replay_a_dead_letter().await?;
    print::line("\nThat was the tour. `make run` in a terminal lets you talk to the manager yourself.");
    Ok(Exit::Done)
}

struct Tour<'a> {
    broker: &'a Broker,
    tools: &'a Tasks,
    stack: &'a Stack,
}

impl Tour<'_> {
    async fn with_real_model(&self) -> Result<Exit, Error> {
        heading("A chat");
        let text = "Say hello in one short sentence.";
        print::line(&format!("you> {text}"));
        let answer = self.completed(chat(text)).await?;
        expect(
            answer.message.is_some_and(|message| !message.content.trim().is_empty()),
            "the model answers with text",
        )?;
        self.schedule().await?;
        heading("The tasks in the gateway's store");
        self.tools.show(Some(&seed::project()?)).await?;
        print::line(
            "\nThat was the part of the tour that needs no offline model. Run it in a terminal to chat.",
        );
        Ok(Exit::Done)
    }

    async fn plan_by_chat(&self) -> Result<(), Error> {
        heading("A plan, by chat");
        print::line(&format!("you> {PLAN}"));
        let answer = self.completed(chat(PLAN)).await?;
        expect(answer.tasks.len() == 3, "the plan creates three tasks")
    }

    async fn schedule(&self) -> Result<(), Error> {
        heading("A schedule fires");
        let schedule = Schedule {
            schedule_id: "nightly".parse().map_err(Error::nats)?,
            run_id: format!("run-{}", HandoffId::now()).parse().map_err(Error::nats)?,
            fired_at: Timestamp::now(),
            payload_type: SchedulePayloadType::Prompt,
            payload: "Look for broken links on the site".into(),
        };
        let answer = self.completed(Work::Schedule(schedule)).await?;
        expect(!answer.tasks.is_empty(), "the schedule creates a task")
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

    async fn verify(&self, task: String) -> Result<(), Error> {
        heading("An analyst verifies one of them");
        let verify = Verify {
            task_id: task.parse().map_err(Error::nats)?,
            acceptance_criteria: vec!["the site is up".to_owned()],
            artifacts: Vec::new(),
            evidence: Vec::new(),
            policy: None,
        };
        let found = self
            .hand_off(Work::Verify(verify), None)
            .await?
            .wait_for_answer(self.broker, ANSWER_TIMEOUT)
            .await?;
        answer::show(&found, false);
        match &found {
            // The site was not published, so the analyst must not report `pass`.
            Answer::Findings(findings) => expect(
                findings.error.is_none() && findings.status != FindingsStatus::Pass,
                "the analyst returns findings that are not a pass",
            ),
            Answer::Completion(_) => Err(Error::Tour("the answer is not findings".to_owned())),
        }
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
        expect(
            answer.attempts == 2 && Some(answer.instance.to_string()) != killed,
            "another worker resumed it",
        )?;
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
        let found = self.hand_off(work, None).await?.wait_for_answer(self.broker, ANSWER_TIMEOUT).await?;
        answer::show(&found, false);
        match found {
            Answer::Completion(answer) if answer.status == Status::Completed => Ok(answer),
            other => Err(Error::Tour(format!("{} was not completed", other.handoff_id()))),
        }
    }

    async fn hand_off(&self, work: Work, within: Option<Duration>) -> Result<AnswerListener, Error> {
        let scope = Scope { project_id: Some(seed::project()?), ..Scope::default() };
        handoff::submit(self.broker, &handoff::new(work, scope, within), Encoding::Json, None).await
    }
}

fn chat(text: &str) -> Work {
    handoff::chat(vec![ChatMessage { role: ChatRole::User, content: text.to_owned() }], false)
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
