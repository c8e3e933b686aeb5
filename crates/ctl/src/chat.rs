//! A conversation with the project manager at the terminal: what is typed is handed off, and what comes of it is shown as
//! it happens.

mod input; // lines as they are typed, and signals
mod order; // what a line asks for
mod screen; // what is shown while an answer is awaited
mod tasks; // the tasks in the gateway's store

pub(crate) use input::Input;
pub(crate) use tasks::Tasks;

use broker::Broker;
use subjects::{
    Answer, ChatMessage, ChatRole, Continue, Encoding, HandoffId, Plan, Schedule, SchedulePayloadType, Scope,
    ScopeId, Status, Subject, Timestamp, Verify, Work,
};

use crate::{
    answer, cli, dead,
    error::{Error, Exit},
    handoff, journal, print, status,
    waiting::{Heard, Waiting},
};
use input::Typed;
use order::Order;
use screen::Screen;

/// A manager remembers nothing between two handoffs: so much of what was said goes along each time.
const MOST_MESSAGES: usize = 40;

pub(crate) async fn run(broker: &Broker, command: &cli::Chat) -> Result<Exit, Error> {
    let tasks = match &command.token_file {
        Some(token) => Some(Tasks::open(&command.mcp, token)?),
        None => None,
    };
    let input = Input::start()?;
    Conversation::new(broker, tasks.as_ref(), command.project.clone(), input).run().await?;
    Ok(Exit::Done)
}

pub(crate) struct Conversation<'a> {
    broker: &'a Broker,
    tasks: Option<&'a Tasks>,
    project: Option<ScopeId>,
    input: Input,
    messages: Vec<ChatMessage>,
    /// Asked something that the next line answers.
    asks: Option<HandoffId>,
    last: Option<HandoffId>,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(
        broker: &'a Broker,
        tasks: Option<&'a Tasks>,
        project: Option<ScopeId>,
        input: Input,
    ) -> Self {
        Self { broker, tasks, project, input, messages: Vec::new(), asks: None, last: None }
    }

    /// Until the end of what is typed, `/quit`, or a signal.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        loop {
            let line = match self.input.line(if self.asks.is_some() { "answer> " } else { "you> " }).await {
                Typed::Line(line) => line,
                Typed::End | Typed::Interrupt | Typed::Terminate => return Ok(()),
            };
            let order = match Order::read(&line) {
                Ok(None) => continue,
                Ok(Some(Order::Quit)) => return Ok(()),
                Ok(Some(order)) => order,
                Err(why) => {
                    print::note(&why);
                    continue;
                }
            };
            // Nothing that goes wrong with one line ends the conversation.
            match self.carry_out(order).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => print::note(&broker::Chain(&error).to_string()),
            }
        }
    }

    /// Whether the conversation goes on.
    async fn carry_out(&mut self, order: Order) -> Result<bool, Error> {
        match order {
            Order::Say(text) => self.say(text).await,
            Order::Plan(goal) => {
                let plan = Plan { goal, acceptance_criteria: Vec::new(), constraints: Vec::new() };
                self.hand_off(Work::Plan(plan)).await
            }
            Order::Schedule(prompt) => {
                let manual = |text: &str| text.parse::<ScopeId>().map_err(Error::nats);
                let schedule = Schedule {
                    schedule_id: manual("from-the-chat")?,
                    run_id: manual(&format!("run-{}", HandoffId::now()))?,
                    fired_at: Timestamp::now(),
                    payload_type: SchedulePayloadType::Prompt,
                    payload: prompt.into(),
                };
                self.hand_off(Work::Schedule(schedule)).await
            }
            Order::Verify { task_id, criteria } => {
                let (artifacts, evidence) = (Vec::new(), Vec::new());
                let verify =
                    Verify { task_id, acceptance_criteria: criteria, artifacts, evidence, policy: None };
                self.hand_off(Work::Verify(verify)).await
            }
            Order::Tasks => {
                match self.tasks {
                    Some(tasks) => tasks.show(self.project.as_ref()).await?,
                    None => {
                        print::note("for the list of tasks say --token-file: an agent's token at the gateway")
                    }
                }
                Ok(true)
            }
            Order::Journal(id) => {
                match id.or(self.last) {
                    Some(handoff) => {
                        journal::run(self.broker, cli::Journal::Show { handoff, follow: false }, false)
                            .await?;
                    }
                    None => print::note("nothing was handed off yet; /journal <handoff> shows another's"),
                }
                Ok(true)
            }
            Order::Status => status::run(self.broker, false).await.map(|_| true),
            Order::Dead => {
                dead::run(self.broker, cli::Dead::Ls { limit: 20, kind: None, reason: None }, false).await?;
                Ok(true)
            }
            Order::Replay(number) => {
                let which = cli::Which { numbers: vec![number], all: false, reason: None };
                dead::run(self.broker, cli::Dead::Replay { which, sign: None }, false).await?;
                Ok(true)
            }
            Order::Help => {
                print::note(order::HELP);
                Ok(true)
            }
            Order::Quit => Ok(false),
        }
    }

    async fn say(&mut self, text: String) -> Result<bool, Error> {
        if let Some(continues) = self.asks.take() {
            return self.hand_off(Work::Continue(Continue { continues, input: text })).await;
        }
        self.messages.push(ChatMessage { role: ChatRole::User, content: text });
        let from = self.messages.len().saturating_sub(MOST_MESSAGES);
        self.hand_off(handoff::chat(self.messages[from..].to_vec(), true)).await
    }

    async fn hand_off(&mut self, work: Work) -> Result<bool, Error> {
        let scope = Scope { project_id: self.project.clone(), ..Scope::default() };
        let handoff = handoff::new(work, scope, None);
        let waiting = handoff::submit(self.broker, &handoff, Encoding::Json, None).await?;
        self.last = Some(handoff.id);
        let Some(answer) = self.follow(waiting).await? else { return Ok(false) };
        if let Answer::Completion(completion) = &answer {
            if completion.status == Status::NeedsClarification {
                self.asks = Some(handoff.id);
            }
            let said = completion.message.as_ref().map(|message| message.content.clone());
            self.messages.extend(said.map(|content| ChatMessage { role: ChatRole::Assistant, content }));
        }
        Ok(true)
    }

    /// Shows what is done about a handoff until its answer is there. An interrupt cancels it; a second one, or a
    /// request to end, leaves it to be answered without us.
    async fn follow(&mut self, mut waiting: Waiting) -> Result<Option<Answer>, Error> {
        let mut screen = Screen::start();
        let mut cancelled = false;
        loop {
            let heard = tokio::select! {
                heard = waiting.next(self.broker) => heard?,
                () = screen.due() => Heard::Nothing,
                signal = self.input.signal() => {
                    screen.clear();
                    if cancelled || matches!(signal, Typed::Terminate) {
                        return Ok(None);
                    }
                    cancelled = true;
                    print::note("cancelling; Ctrl-C again leaves");
                    let cancel = Subject::Cancel(waiting.id()).to_string();
                    self.broker.client.publish(cancel, "".into()).await?;
                    Heard::Nothing
                }
            };
            match heard {
                Heard::Answer(answer) => {
                    screen.answer(&answer);
                    answer::circumstances(&answer);
                    return Ok(Some(*answer));
                }
                Heard::Event(event) => screen.event(&event),
                Heard::Delta(delta) => screen.delta(&delta),
                Heard::Nothing => screen.tick(),
            }
        }
    }
}
