//! Drives a [`Conversation`]: asks the model, executes the calls it requests and feeds the results back.

use std::sync::Arc;

use futures_util::future::join_all;
use subjects::{FinishReason, Kind, Message, Stop};

use super::{
    Outcome, WorkError,
    calls::PreparedCall,
    conversation::{Action, Conversation, End, Event, Observation, RequestedCall},
    session::Session,
};
use crate::{
    inference::Finish,
    tools::{CallError, Offer, VerificationRequest},
};

impl Session<'_> {
    /// Converses with the model until it answers or asks the user a question, and executes the calls it
    /// requests.
    pub(super) async fn converse(&self, goal: &str, messages: Vec<Message>) -> Result<Outcome, WorkError> {
        let settings = &self.resources.settings;
        let offer = self.offer(goal);
        self.ledger.set_offered_tools(&offer.tools);
        let mut conversation =
            Conversation::new(self.resources.role, Arc::clone(&offer.names), settings.max_steps, messages);
        let mut action = conversation.begin();
        loop {
            let event = match action {
                Action::Ask { last } => Event::Replied(
                    self.ask(conversation.turns() - 1, conversation.messages(), &offer, !last).await?,
                ),
                Action::Execute(calls) => Event::Executed(self.execute_all(calls).await?),
                Action::Finish(End::Failed(error)) => return Err(error),
                Action::Finish(End::Asks { question }) => {
                    return Ok(Outcome::question(Kind::Chat, question, conversation.messages()));
                }
                Action::Finish(End::Answered { content, finish, out_of_steps }) => {
                    return Ok(answered(self.append_unverified(content), finish, out_of_steps));
                }
            };
            action = conversation.step(event);
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
    async fn execute_all(&self, calls: Vec<RequestedCall>) -> Result<Vec<Observation>, WorkError> {
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
                ReadyCall::Refused(why)
            }
            RequestedCall::Tool { tool, arguments } => ReadyCall::Call(self.prepare(&tool, arguments)),
            RequestedCall::Verify(request) => ReadyCall::Verify(request),
        }
    }

    async fn execute(&self, call: ReadyCall) -> Result<Observation, WorkError> {
        match call {
            ReadyCall::Refused(why) => Ok(Observation { text: format!("Error: {why}"), failed: true }),
            ReadyCall::Call(prepared) => {
                let returned = self.perform(prepared?).await?;
                let mut text = returned.text;
                if returned.truncated {
                    text.push_str("\n[cut: the result was longer]");
                }
                if returned.failed {
                    text.insert_str(0, "Error: ");
                }
                Ok(Observation { text, failed: returned.failed })
            }
            ReadyCall::Verify(request) => Ok(Box::pin(self.verify(request)).await),
        }
    }
}

/// A requested call that is ready to be executed.
enum ReadyCall {
    Refused(String),
    Call(Result<PreparedCall, WorkError>),
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
