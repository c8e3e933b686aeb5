//! Observe, reason, act: what follows from what. No I/O, no clock; the same events always lead to the same actions.

use std::sync::Arc;

use serde_json::{Map, Value};
use subjects::{Message, Role, ToolCall};

use super::Broken;
use crate::{
    context::defused,
    inference::{Finish, Reply},
    tools::{Control, NameTable, VerificationWanted},
};

/// After so many rounds in which every call failed, the model will not find its way any more.
const MOST_FAILED_ROUNDS: u32 = 3;
/// More calls than this in one reply are not carried out.
const MOST_CALLS: usize = 16;

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Replied(Reply),
    /// One result for each act, in their order.
    Acted(Vec<Observed>),
}

/// What a call came to, as the model will see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) text: String,
    pub(crate) failed: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask the model. The last time it is offered no tools: it has to answer with what it has.
    Ask {
        last: bool,
    },
    /// Do all of this, at once.
    Act(Vec<Act>),
    Finish(End),
}

/// One call of the model, looked at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Call {
        tool: String,
        arguments: Map<String, Value>,
    },
    Verify(VerificationWanted),
    /// Not to be carried out; the model is told why.
    Refuse {
        name: String,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Answered { content: String, finish: Finish, out_of_steps: bool },
    Asks { question: String },
    Broken(Broken),
}

/// The conversation of one handoff.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    role: Role,
    names: Arc<NameTable>,
    max_steps: u32,
    taken: u32,
    failed_rounds: u32,
    messages: Vec<Message>,
    /// Calls that wait for their results.
    open: Vec<ToolCall>,
}

impl Turn {
    pub(crate) fn new(role: Role, names: Arc<NameTable>, max_steps: u32, messages: Vec<Message>) -> Self {
        Self { role, names, max_steps, taken: 0, failed_rounds: 0, messages, open: Vec::new() }
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How many times the model was asked.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// The first action.
    pub(crate) fn begin(&mut self) -> Action {
        self.ask()
    }

    /// What follows from an event.
    pub(crate) fn step(&mut self, event: Event) -> Action {
        match event {
            Event::Replied(reply) => self.replied(reply),
            Event::Acted(observed) => self.acted(observed),
        }
    }

    fn ask(&mut self) -> Action {
        self.taken += 1;
        Action::Ask { last: self.taken >= self.max_steps }
    }

    fn replied(&mut self, reply: Reply) -> Action {
        let last = self.taken >= self.max_steps;
        if reply.calls.is_empty() {
            let out_of_steps = last && self.max_steps > 1;
            return Action::Finish(End::Answered {
                content: reply.content,
                finish: reply.finish,
                out_of_steps,
            });
        }
        if last {
            return Action::Finish(End::Broken(Broken::MaxSteps { steps: self.taken }));
        }
        let acts: Vec<Read> =
            reply.calls.iter().enumerate().map(|(index, call)| self.read(index, call)).collect();
        // A question ends the turn, and nothing else is done after asking.
        if let Some(question) = acts.iter().find_map(|act| match act {
            Read::Ask(question) => Some(question.clone()),
            Read::Do(_) => None,
        }) {
            return Action::Finish(End::Asks { question });
        }
        let calls: Vec<ToolCall> = reply.calls.into_iter().map(|call| self.presentable(call)).collect();
        let content = defused(&reply.content).into_owned();
        self.messages.push(Message::Assistant { content, calls: calls.clone() });
        self.open = calls;
        Action::Act(
            acts.into_iter()
                .filter_map(|act| match act {
                    Read::Do(act) => Some(act),
                    Read::Ask(_) => None,
                })
                .collect(),
        )
    }

    /// A call as a server takes it back: with an id that no earlier call has, and arguments that are an object. What was
    /// wrong with it stands in its result.
    fn presentable(&self, call: ToolCall) -> ToolCall {
        let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
        let arguments = if is_object { defused(&call.arguments).into_owned() } else { "{}".to_owned() };
        let is_taken = self.messages.iter().any(|message| match message {
            Message::Assistant { calls, .. } => calls.iter().any(|earlier| earlier.id == call.id),
            Message::User { .. } | Message::Tool { .. } => false,
        });
        let id = if is_taken { format!("{}_{}", call.id, self.taken) } else { call.id };
        ToolCall { id, name: call.name, arguments }
    }

    fn read(&self, index: usize, call: &ToolCall) -> Read {
        let refuse = |why: String| Read::Do(Act::Refuse { name: short(&call.name), why });
        if index >= MOST_CALLS {
            return refuse(format!("not carried out: at most {MOST_CALLS} calls at once"));
        }
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        let arguments: Map<String, Value> = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return refuse(format!("the arguments are not a JSON object: {error}")),
        };
        match Control::read(self.role, &call.name, &arguments) {
            Some(Ok(Control::AskUser { question })) => return Read::Ask(question),
            Some(Ok(Control::RequestVerification(wanted))) => return Read::Do(Act::Verify(wanted)),
            Some(Err(why)) => return refuse(why),
            None => {}
        }
        match self.names.tool_called(&call.name) {
            Some(tool) => Read::Do(Act::Call { tool: tool.to_owned(), arguments }),
            None => refuse("there is no such tool; call only those that are offered".to_owned()),
        }
    }

    fn acted(&mut self, observed: Vec<Observed>) -> Action {
        let last_error = observed.iter().rev().find(|observed| observed.failed).map(|it| it.text.clone());
        let all_failed = !observed.is_empty() && observed.iter().all(|observed| observed.failed);
        self.failed_rounds = if all_failed { self.failed_rounds + 1 } else { 0 };
        for (call, observed) in std::mem::take(&mut self.open).into_iter().zip(observed) {
            let content = defused(&observed.text).into_owned();
            self.messages.push(Message::Tool { call_id: call.id, name: call.name, content });
        }
        match last_error {
            Some(why) if self.failed_rounds >= MOST_FAILED_ROUNDS => {
                Action::Finish(End::Broken(Broken::KeepsFailing { count: self.failed_rounds, why }))
            }
            _ => self.ask(),
        }
    }
}

enum Read {
    Do(Act),
    Ask(String),
}

fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests;
