//! `cynodectl chat`: a conversation with the project manager at the terminal. Each line becomes a handoff,
//! whose progress is shown as it happens.

mod command;
mod input;
mod screen;
mod tasks;

pub(crate) use input::Input;
pub(crate) use tasks::Tasks;

use std::{env, path::PathBuf};

use broker::Broker;
use subjects::{
    Answer, ChatMessage, ChatRole, Continue, Encoding, HandoffId, Plan, Schedule, SchedulePayloadType, Scope,
    ScopeId, Status, Subject, Timestamp, Verify, Work,
};

use crate::{
    answer,
    cli::{self, GatewayLink},
    dead,
    error::{Error, Exit},
    gateway::{Gateway, leases::HandoffLeases},
    handoff, journal,
    listener::{AnswerListener, Update},
    print, status,
};
use command::ChatCommand;
use input::InputEvent;
use screen::Screen;

/// A manager keeps no state between handoffs, so the latest messages are sent with each one.
const MAX_MESSAGES: usize = 40;

pub(crate) async fn run(broker: &Broker, gateway: &GatewayLink, command: &cli::Chat) -> Result<Exit, Error> {
    let tasks = match &command.token_file {
        Some(token) => Some(Tasks::open(&command.mcp, token)?),
        None => None,
    };
    let leases = match &command.user {
        Some(user) => Some(HandoffLeases { gateway: Gateway::open(gateway)?, user: user.clone() }),
        None => None,
    };
    let input = Input::start(history_file())?;
    let context = ChatContext {
        tasks: tasks.as_ref(),
        project: command.project.clone(),
        leases: leases.as_ref(),
        gateway,
    };
    Conversation::new(broker, context, input).run().await?;
    Ok(Exit::Done)
}

/// The history of chats that belong to no stack of this machine, where programs keep their state.
fn history_file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(env::home_dir()?.join(".local/state")))?;
    Some(state.join("cynode/chat-history"))
}

/// What a conversation is about, and on whose behalf.
pub(crate) struct ChatContext<'a> {
    pub(crate) tasks: Option<&'a Tasks>,
    pub(crate) project: Option<ScopeId>,
    /// `None`: the manager acts for the whole system.
    pub(crate) leases: Option<&'a HandoffLeases>,
    /// Knows the nodes.
    pub(crate) gateway: &'a GatewayLink,
}

pub(crate) struct Conversation<'a> {
    broker: &'a Broker,
    context: ChatContext<'a>,
    input: Input,
    messages: Vec<ChatMessage>,
    /// Handoff that asked for clarification; the next line answers it.
    asked_by: Option<HandoffId>,
    last: Option<HandoffId>,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(broker: &'a Broker, context: ChatContext<'a>, input: Input) -> Self {
        Self { broker, context, input, messages: Vec::new(), asked_by: None, last: None }
    }

    /// Runs until the end of input, `/quit` or a signal.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        loop {
            let line = match self.input.line(if self.asked_by.is_some() { "answer> " } else { "you> " }).await
            {
                InputEvent::Line(line) => line,
                InputEvent::End | InputEvent::Interrupt | InputEvent::Terminate => return Ok(()),
            };
            let command = match ChatCommand::parse(&line) {
                Ok(None) => continue,
                Ok(Some(ChatCommand::Quit)) => return Ok(()),
                Ok(Some(command)) => command,
                Err(why) => {
                    print::note(&why);
                    continue;
                }
            };
            // An error in one line does not end the conversation.
            match self.execute(command).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => print::note(&broker::Chain(&error).to_string()),
            }
        }
    }

    /// Executes a command. Returns whether the conversation continues.
    async fn execute(&mut self, command: ChatCommand) -> Result<bool, Error> {
        match command {
            ChatCommand::Say(text) => self.say(text).await,
            ChatCommand::Plan(goal) => {
                let plan =
                    Plan { goal, acceptance_criteria: Vec::new(), constraints: Vec::new(), task_id: None };
                self.hand_off(Work::Plan(plan)).await
            }
            ChatCommand::Schedule(prompt) => {
                let scope_id = |text: &str| text.parse::<ScopeId>().map_err(Error::nats);
                let schedule = Schedule {
                    schedule_id: scope_id("from-the-chat")?,
                    run_id: scope_id(&format!("run-{}", HandoffId::now()))?,
                    fired_at: Timestamp::now(),
                    payload_type: SchedulePayloadType::Prompt,
                    payload: prompt.into(),
                };
                self.hand_off(Work::Schedule(schedule)).await
            }
            ChatCommand::Verify { task_id, criteria } => {
                let task_id = match self.context.tasks {
                    Some(tasks) => tasks.resolve(self.context.project.as_ref(), task_id).await?,
                    None => task_id,
                };
                let (artifacts, evidence) = (Vec::new(), Vec::new());
                let verify =
                    Verify { task_id, acceptance_criteria: criteria, artifacts, evidence, policy: None };
                self.hand_off(Work::Verify(verify)).await
            }
            ChatCommand::Tasks => {
                match self.context.tasks {
                    Some(tasks) => tasks.show(self.context.project.as_ref()).await?,
                    None => {
                        print::note("to list tasks, pass --token-file with an agent token for the gateway")
                    }
                }
                Ok(true)
            }
            ChatCommand::Journal(id) => {
                match id.or(self.last) {
                    Some(handoff) => {
                        journal::run(self.broker, cli::Journal::Show { handoff, follow: false }, false)
                            .await?;
                    }
                    None => {
                        print::note("no handoff in this conversation yet; /journal HANDOFF shows any other")
                    }
                }
                Ok(true)
            }
            ChatCommand::Status => status::run(self.broker, self.context.gateway, false).await.map(|_| true),
            ChatCommand::Dead => {
                dead::run(self.broker, cli::Dead::Ls { limit: 20, kind: None, reason: None }, false).await?;
                Ok(true)
            }
            ChatCommand::Replay(number) => {
                let selection = cli::LetterSelection { numbers: vec![number], all: false, reason: None };
                dead::run(self.broker, cli::Dead::Replay { selection, sign: None }, false).await?;
                Ok(true)
            }
            ChatCommand::Help => {
                print::note(command::HELP);
                Ok(true)
            }
            ChatCommand::Quit => Ok(false),
        }
    }

    async fn say(&mut self, text: String) -> Result<bool, Error> {
        if let Some(continues) = self.asked_by.take() {
            return self
                .hand_off(Work::Continue(Continue { stream: true, ..Continue::new(continues, text) }))
                .await;
        }
        self.messages.push(ChatMessage { role: ChatRole::User, content: text });
        let from = self.messages.len().saturating_sub(MAX_MESSAGES);
        self.hand_off(handoff::chat(self.messages[from..].to_vec(), true)).await
    }

    async fn hand_off(&mut self, work: Work) -> Result<bool, Error> {
        let leases = self.context.leases;
        let user_id = leases.map(|leases| leases.user.clone());
        let scope = Scope { user_id, project_id: self.context.project.clone(), ..Scope::default() };
        let handoff = handoff::new(work, scope, None);
        let lease = match leases {
            Some(leases) => Some(leases.issue_for(&handoff).await?),
            None => None,
        };
        let listener = handoff::submit(self.broker, &handoff, Encoding::Json, None, lease.as_deref()).await?;
        self.last = Some(handoff.id);
        let Some(answer) = self.follow(listener).await? else { return Ok(false) };
        if let Answer::Completion(completion) = &answer {
            if completion.status == Status::NeedsClarification {
                self.asked_by = Some(handoff.id);
            }
            let reply = completion.message.as_ref().map(|message| message.content.clone());
            self.messages.extend(reply.map(|content| ChatMessage { role: ChatRole::Assistant, content }));
        }
        Ok(true)
    }

    /// Shows the progress of a handoff until its answer. An interrupt cancels it; a second interrupt, or a
    /// termination signal, returns `None` and leaves the handoff running.
    async fn follow(&mut self, mut listener: AnswerListener) -> Result<Option<Answer>, Error> {
        let mut screen = Screen::start();
        let mut cancelled = false;
        loop {
            let update = tokio::select! {
                update = listener.next(self.broker) => update?,
                () = screen.wait_for_tick() => Update::Nothing,
                signal = self.input.signal() => {
                    screen.clear();
                    if cancelled || matches!(signal, InputEvent::Terminate) {
                        return Ok(None);
                    }
                    cancelled = true;
                    print::note("cancelling; press Ctrl-C again to quit");
                    let cancel = Subject::Cancel(listener.id()).to_string();
                    self.broker.client.publish(cancel, "".into()).await?;
                    Update::Nothing
                }
            };
            match update {
                Update::Answer(answer) => {
                    screen.answer(&answer);
                    answer::show_without_message(&answer);
                    return Ok(Some(*answer));
                }
                Update::Event(event) => screen.event(&event),
                Update::Delta(delta) => screen.delta(&delta),
                Update::Nothing => screen.tick(),
            }
        }
    }
}
