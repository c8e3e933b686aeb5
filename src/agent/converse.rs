//! Drives a [`Conversation`]: asks the model, executes the calls it requests and feeds the results back.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use subjects::{FinishReason, Kind, Message, StepOutcome, Stop};

use super::{
    Outcome, WorkError,
    calls::PreparedCall,
    claims::{self, Assessment, Background, Change},
    conversation::{Action, Conversation, End, Event, Observation, RequestedCall},
    session::Session,
};
use crate::{
    inference::{self, ASK_USER, Finish, OBJECTION},
    tools::{CallError, Offer, VerificationRequest},
};

/// Asks again after a reply that was cut off in a call.
const CUT_CALL: &str =
    "That was cut off in a tool call, so nothing was called. Be brief: call it, or answer.";
/// An objection repeats the request up to this length, so that it is not taken for the request.
const MAX_REPEATED_CHARS: usize = 500;

impl Session<'_> {
    /// Converses with the model until it answers or asks the user a question, and executes the calls it
    /// requests.
    pub(super) async fn converse(&self, goal: &str, messages: Vec<Message>) -> Result<Outcome, WorkError> {
        let settings = &self.resources.settings;
        let offer = self.offer(goal);
        self.ledger.set_offered_tools(&offer.tools, self.catalogue.matched_words(goal, &offer.tools));
        if !offer.tools.is_empty() {
            self.live.offered(&offer.tools);
        }
        let mut conversation =
            Conversation::new(self.resources.role, Arc::clone(&offer.names), settings.max_steps, messages);
        let mut action = conversation.begin();
        let earlier = conversation.messages().len();
        let (mut changes, mut has_read) = (Vec::new(), false);
        let (mut objected, mut was_cut) = (false, false);
        loop {
            let event = match action {
                Action::Ask { last } => {
                    let (turn, messages) = (conversation.turns() - 1, conversation.messages());
                    Event::Replied(self.ask(turn, messages, &offer, !last, was_cut).await?)
                }
                Action::Execute(calls) => {
                    self.live.selected(calls.iter().filter_map(RequestedCall::tool_name).collect());
                    let executed = self.execute_all(calls.clone()).await?;
                    changes
                        .extend(calls.iter().zip(&executed).filter_map(|(call, it)| self.change(call, it)));
                    was_cut = false;
                    has_read |= executed.iter().any(|observed| !observed.failed);
                    Event::Executed(executed)
                }
                Action::Finish(End::Failed(error)) => return Err(error),
                Action::Finish(End::CutOff { content, calls, model }) => {
                    self.record_cut_calls(&calls);
                    let is_second = std::mem::replace(&mut was_cut, true);
                    let why = format!("{CUT_CALL} Asked for was: {}", repeated(goal));
                    let next = if is_second { None } else { conversation.object(&content, &why) };
                    action = next.ok_or_else(|| cut_off(model))?;
                    continue;
                }
                Action::Finish(End::Asks { mut question }) => {
                    self.live.selected(vec![ASK_USER.to_owned()]);
                    let background = Background { earlier: &conversation.messages()[..earlier], has_read };
                    if claims::assess(&question, &changes, background) != Assessment::Fine {
                        self.add_facts(&mut question, &changes);
                    }
                    return Ok(Outcome::question(Kind::Chat, question, conversation.messages()));
                }
                Action::Finish(End::Answered { mut content, finish, out_of_steps }) => {
                    let background = Background { earlier: &conversation.messages()[..earlier], has_read };
                    let assessment = claims::assess(&content, &changes, background);
                    if let Assessment::Unkept(unkept) = &assessment
                        && !std::mem::replace(&mut objected, true)
                    {
                        let done = claims::describe(&changes);
                        let goal = repeated(goal);
                        let why = format!(
                            "{OBJECTION} {unkept}; {done}. Asked for was: {goal}\nIf something of \
                             that is left to do, do it now with a tool. Otherwise answer with what is true."
                        );
                        if let Some(next) = conversation.object(&content, &why) {
                            self.ledger.record_refusal("answer", &format!("asked again: {unkept}"));
                            action = next;
                            continue;
                        }
                    }
                    if assessment != Assessment::Fine {
                        self.add_facts(&mut content, &changes);
                    }
                    let content = self.remedy(self.append_unverified(content), &changes).await?;
                    return Ok(answered(content, finish, out_of_steps));
                }
            };
            action = conversation.step(event);
        }
    }

    /// Records calls that were cut off and so not made.
    fn record_cut_calls(&self, names: &[String]) {
        for name in names {
            self.ledger.record_refusal(name, "not called: the reply was cut off in its calls");
            self.live.not_called(None, StepOutcome::Failed);
        }
    }

    /// Adds to a text that may claim more than was done what was really done.
    fn add_facts(&self, text: &mut String, changes: &[Change]) {
        let done = claims::describe(changes);
        self.ledger.record_refusal("answer", &format!("added what was done: {done}"));
        text.push_str("\n\n(In this turn ");
        text.push_str(&done);
        text.push_str(".)");
    }

    /// Returns the change that a call made, if it succeeded and may have changed something.
    fn change(&self, call: &RequestedCall, observed: &Observation) -> Option<Change> {
        match call {
            _ if observed.failed => None,
            RequestedCall::Tool { tool, arguments } if !self.catalogue.only_reads(tool) => {
                Some(Change::by_tool(tool, &json!(arguments).to_string(), &observed.text))
            }
            RequestedCall::Verify(request) => Some(Change::by_verification(&request.task_id)),
            RequestedCall::Tool { .. } | RequestedCall::Refuse { .. } => None,
        }
    }

    /// Returns the tools that an earlier attempt offered, if there was one, and otherwise those that match
    /// the goal best. A repeated offer keeps the requests of all attempts the same.
    fn offer(&self, goal: &str) -> Offer {
        let (role, max_tools) = (self.resources.role, self.resources.settings.offered_tools);
        match self.journal.take_offered() {
            Some(tools) => self.catalogue.restore_offer(role, &tools),
            None => {
                let offer = self.catalogue.offer(role, goal, max_tools);
                if !offer.tools.is_empty() {
                    self.journal.record_offered(&offer.tools);
                }
                offer
            }
        }
    }

    /// Executes all calls concurrently and returns the results in the order of the calls. An error that
    /// cannot be reported to the model is returned after all other calls have ended. A rejection takes
    /// precedence.
    pub(super) async fn execute_all(&self, calls: Vec<RequestedCall>) -> Result<Vec<Observation>, WorkError> {
        let ready: Vec<ReadyCall> = calls.into_iter().map(|call| self.make_ready(call)).collect();
        let executing = join_all(ready.into_iter().map(|call| self.execute(call)));
        // A call with an effect waits until the turn is stored. Reads do not wait and may take long, so the
        // turn is stored while they run.
        let (results, ()) = tokio::join!(executing, self.journal.write_if_costly());
        if let Some(Err(rejected)) =
            results.iter().find(|result| matches!(result, Err(WorkError::Call(CallError::Rejected { .. }))))
        {
            return Err(rejected.clone());
        }
        results.into_iter().collect()
    }

    fn make_ready(&self, call: RequestedCall) -> ReadyCall {
        match call {
            RequestedCall::Refuse { name, why } => {
                self.ledger.record_refusal(&name, &why);
                self.live.not_called(None, StepOutcome::Failed);
                ReadyCall::Refused(why)
            }
            RequestedCall::Tool { tool, mut arguments } => {
                let filled = match self.catalogue.get(&tool) {
                    Some(info) => self.scoped_ids.fill(info, &mut arguments),
                    None => Ok(Vec::new()),
                };
                let checked = filled
                    .and_then(|notes| self.catalogue.check_arguments(&tool, &arguments).map(|()| notes));
                match checked {
                    Ok(notes) => ReadyCall::Call(self.prepare(&tool, arguments), notes),
                    Err(why) => {
                        let why = format!("invalid arguments, not called: {why}");
                        self.ledger.record_refusal(&tool, &why);
                        self.live.not_called(Some(&tool), StepOutcome::Failed);
                        ReadyCall::Refused(why)
                    }
                }
            }
            RequestedCall::Verify(request) => ReadyCall::Verify(request),
        }
    }

    async fn execute(&self, call: ReadyCall) -> Result<Observation, WorkError> {
        match call {
            ReadyCall::Refused(why) => Ok(Observation { text: format!("Error: {why}"), failed: true }),
            ReadyCall::Call(prepared, notes) => {
                let returned = self.perform(prepared?).await?;
                let mut text = returned.text;
                if returned.truncated {
                    text.push_str("\n[cut: the result was longer]");
                }
                if returned.failed {
                    text.insert_str(0, "Error: ");
                }
                for note in notes {
                    text.push_str(&format!("\n[{note}]"));
                }
                Ok(Observation { text, failed: returned.failed })
            }
            ReadyCall::Verify(request) => Box::pin(self.verify(request)).await,
        }
    }
}

/// Returns the request, for a message that could be taken for it.
fn repeated(goal: &str) -> String {
    goal.chars().take(MAX_REPEATED_CHARS).collect()
}

/// Returns the failure of a model whose calls are cut off again and again.
fn cut_off(model: String) -> WorkError {
    let why = "a call was cut off, twice; raise `max_tokens` in `inference.profiles`".to_owned();
    inference::Error::Unusable { model, why }.into()
}

/// A requested call that is ready to be executed.
enum ReadyCall {
    Refused(String),
    /// With a note for the model besides the result.
    Call(Result<PreparedCall, WorkError>, Vec<String>),
    Verify(VerificationRequest),
}

/// Converts the model's final reply into an outcome.
fn answered(content: String, finish: Finish, out_of_steps: bool) -> Outcome {
    let reason = match finish {
        Finish::Stop => FinishReason::Stop,
        Finish::Length | Finish::CutShort => FinishReason::Length,
    };
    let mut outcome = Outcome::completed(content, reason);
    if finish == Finish::CutShort {
        outcome.stop = Stop::Budget;
    } else if out_of_steps {
        outcome.stop = Stop::MaxSteps;
    }
    outcome
}
