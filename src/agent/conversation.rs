//! The state machine of a conversation with a model: from events to the next action. It does no I/O and reads
//! no clock, so the same events always lead to the same actions.

use std::sync::Arc;

use serde_json::{Map, Value};
use subjects::{Message, Role, ToolCall};

use super::WorkError;
use crate::{
    context::escape_template_marks,
    inference::{Finish, Reply},
    tools::{Control, NameTable, REQUEST_VERIFICATION, VerificationRequest},
};

/// The work fails after this many turns in a row in which every call failed.
const MAX_FAILED_ROUNDS: u32 = 3;
/// Maximum number of calls in one reply; the others are refused.
const MAX_CALLS: usize = 16;

/// An event that the conversation reacts to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Replied(Reply),
    /// One result for each requested call, in their order.
    Executed(Vec<Observation>),
}

/// The result of a call as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) text: String,
    pub(crate) failed: bool,
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask the model. The last time it may call no tools and has to answer.
    Ask {
        last: bool,
    },
    /// Execute all of these calls concurrently.
    Execute(Vec<RequestedCall>),
    Finish(End),
}

/// A call that the model requested, validated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RequestedCall {
    Tool {
        tool: String,
        arguments: Map<String, Value>,
    },
    Verify(VerificationRequest),
    /// Not executed; the model gets the reason.
    Refuse {
        name: String,
        why: String,
    },
}

impl RequestedCall {
    /// Returns the tool or function that the model selected; `None` for a call that is refused, whose name
    /// may be any text of the model.
    pub(crate) fn tool_name(&self) -> Option<String> {
        match self {
            Self::Tool { tool, .. } => Some(tool.clone()),
            Self::Verify(_) => Some(REQUEST_VERIFICATION.to_owned()),
            Self::Refuse { .. } => None,
        }
    }
}

/// How a conversation ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Answered {
        content: String,
        finish: Finish,
        out_of_steps: bool,
    },
    Asks {
        question: String,
    },
    /// The reply was cut off in one of its calls, so none of them is executed. Not the end if the model may
    /// be asked again.
    CutOff {
        content: String,
        calls: Vec<String>,
        model: String,
    },
    Failed(WorkError),
}

/// The state of the conversation of one handoff.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    role: Role,
    names: Arc<NameTable>,
    max_steps: u32,
    turns: u32,
    failed_rounds: u32,
    messages: Vec<Message>,
    /// Calls without results so far.
    open: Vec<ToolCall>,
}

impl Conversation {
    pub(crate) fn new(role: Role, names: Arc<NameTable>, max_steps: u32, messages: Vec<Message>) -> Self {
        Self { role, names, max_steps, turns: 0, failed_rounds: 0, messages, open: Vec::new() }
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns how many times the model was asked.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Returns the first action.
    pub(crate) fn begin(&mut self) -> Action {
        self.ask()
    }

    /// Returns the action that follows an event.
    pub(crate) fn step(&mut self, event: Event) -> Action {
        match event {
            Event::Replied(reply) => self.on_reply(reply),
            Event::Executed(observed) => self.on_results(observed),
        }
    }

    /// Rejects the last reply as an answer and asks again, saying why. Returns `None` if no turn is left.
    pub(crate) fn object(&mut self, answer: &str, why: &str) -> Option<Action> {
        if self.turns >= self.max_steps {
            return None;
        }
        // An empty message is not sent back: some servers refuse it.
        if !answer.trim().is_empty() {
            let content = escape_template_marks(answer).into_owned();
            self.messages.push(Message::Assistant { content, calls: Vec::new() });
        }
        self.messages.push(Message::user(escape_template_marks(why)));
        Some(self.ask())
    }

    fn ask(&mut self) -> Action {
        self.turns += 1;
        Action::Ask { last: self.turns >= self.max_steps }
    }

    fn on_reply(&mut self, reply: Reply) -> Action {
        let last = self.turns >= self.max_steps;
        if reply.calls.is_empty() {
            let out_of_steps = last && self.max_steps > 1;
            return Action::Finish(End::Answered {
                content: reply.content,
                finish: reply.finish,
                out_of_steps,
            });
        }
        if last {
            return Action::Finish(End::Failed(WorkError::MaxSteps { steps: self.turns }));
        }
        if has_cut_call(&reply) {
            let calls = reply.calls.iter().map(|call| short(&call.name)).collect();
            return Action::Finish(End::CutOff { content: reply.content, calls, model: reply.model });
        }
        let parsed: Vec<ParsedCall> =
            reply.calls.iter().enumerate().map(|(index, call)| self.parse_call(index, call)).collect();
        // A question ends the conversation, and the other calls of the reply are not executed.
        if let Some(question) = parsed.iter().find_map(|call| match call {
            ParsedCall::AskUser(question) => Some(question.clone()),
            ParsedCall::Execute(_) => None,
        }) {
            return Action::Finish(End::Asks { question });
        }
        let mut calls: Vec<ToolCall> = Vec::with_capacity(reply.calls.len());
        for call in reply.calls {
            let call = self.normalized(call, &calls);
            calls.push(call);
        }
        let content = escape_template_marks(&reply.content).into_owned();
        self.messages.push(Message::Assistant { content, calls: calls.clone() });
        self.open = calls;
        Action::Execute(
            parsed
                .into_iter()
                .filter_map(|call| match call {
                    ParsedCall::Execute(call) => Some(call),
                    ParsedCall::AskUser(_) => None,
                })
                .collect(),
        )
    }

    /// Returns the call in a form that servers accept in the history: with an id that no earlier call has,
    /// also of those `before` it in its reply, and with arguments that are a JSON object. The result of the
    /// call says what was wrong with the original.
    fn normalized(&self, call: ToolCall, before: &[ToolCall]) -> ToolCall {
        let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
        let arguments =
            if is_object { escape_template_marks(&call.arguments).into_owned() } else { "{}".to_owned() };
        let has_id = |calls: &[ToolCall], id: &str| calls.iter().any(|call| call.id == id);
        let is_taken = |id: &str| {
            let in_history = self.messages.iter().any(|message| match message {
                Message::Assistant { calls, .. } => has_id(calls, id),
                Message::User { .. } | Message::Tool { .. } => false,
            });
            in_history || has_id(before, id)
        };
        let (mut id, mut number) = (call.id.clone(), self.turns);
        while is_taken(&id) {
            id = format!("{}_{number}", call.id);
            number += 1;
        }
        ToolCall { id, name: call.name, arguments }
    }

    fn parse_call(&self, index: usize, call: &ToolCall) -> ParsedCall {
        let refuse =
            |why: String| ParsedCall::Execute(RequestedCall::Refuse { name: short(&call.name), why });
        if index >= MAX_CALLS {
            return refuse(format!("not carried out: at most {MAX_CALLS} calls at once"));
        }
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        let arguments: Map<String, Value> = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return refuse(format!("the arguments are not a JSON object: {error}")),
        };
        match Control::parse(self.role, &call.name, &arguments) {
            Some(Ok(Control::AskUser { question })) if self.repeats_the_user(&question) => {
                return refuse("that is the user's own question; find the answer with a tool".to_owned());
            }
            Some(Ok(Control::AskUser { question })) => return ParsedCall::AskUser(question),
            Some(Ok(Control::RequestVerification(request))) => {
                return ParsedCall::Execute(RequestedCall::Verify(request));
            }
            Some(Err(why)) => return refuse(why),
            None => {}
        }
        match self.names.tool_name(&call.name) {
            Some(tool) => ParsedCall::Execute(RequestedCall::Tool { tool: tool.to_owned(), arguments }),
            None => refuse("there is no such tool; call only those that are offered".to_owned()),
        }
    }

    /// Returns whether a question only says what the user has said. Small models do that.
    fn repeats_the_user(&self, question: &str) -> bool {
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        let question = words(question);
        self.messages
            .iter()
            .any(|message| matches!(message, Message::User { content } if words(content) == question))
    }

    fn on_results(&mut self, observed: Vec<Observation>) -> Action {
        let last_error = observed.iter().rev().find(|observed| observed.failed).map(|it| it.text.clone());
        let all_failed = !observed.is_empty() && observed.iter().all(|observed| observed.failed);
        self.failed_rounds = if all_failed { self.failed_rounds + 1 } else { 0 };
        for (call, observed) in std::mem::take(&mut self.open).into_iter().zip(observed) {
            let content = escape_template_marks(&observed.text).into_owned();
            self.messages.push(Message::Tool { call_id: call.id, name: call.name, content });
        }
        match last_error {
            Some(why) if self.failed_rounds >= MAX_FAILED_ROUNDS => {
                Action::Finish(End::Failed(WorkError::RepeatedFailures { count: self.failed_rounds, why }))
            }
            _ => self.ask(),
        }
    }
}

/// A call of a reply: to be executed, or a question to the user.
enum ParsedCall {
    Execute(RequestedCall),
    AskUser(String),
}

/// Returns whether a reply was cut off before its calls were complete. A JSON object ends itself, so a call
/// whose arguments parse is complete.
pub(super) fn has_cut_call(reply: &Reply) -> bool {
    let is_whole = |call: &ToolCall| serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    match reply.finish {
        Finish::Stop => false,
        Finish::Length => !reply.calls.iter().all(is_whole),
        Finish::CutShort => !reply.calls.is_empty(),
    }
}

fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests;
