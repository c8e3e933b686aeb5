use std::sync::Arc;

use futures_util::future::join_all;
use subjects::{FinishReason, Kind, Message, Stop};

use super::{
    Broken, Outcome,
    calls::Prepared,
    session::Session,
    turn::{Act, Action, End, Event, Observed, Turn},
};
use crate::{
    inference::Finish,
    tools::{CallError, Offer, VerificationWanted},
};

impl Session<'_> {
    /// Talks with the model until it has answered, carrying out what it asks for on the way.
    pub(super) async fn converse(&self, goal: &str, messages: Vec<Message>) -> Result<Outcome, Broken> {
        let settings = &self.bench.settings;
        let offer = self.offer(goal);
        self.ledger.offered(&offer.tools);
        let mut turn = Turn::new(self.bench.role, Arc::clone(&offer.names), settings.max_steps, messages);
        let mut action = turn.begin();
        loop {
            let event = match action {
                Action::Ask { last } => {
                    Event::Replied(self.ask(turn.taken() - 1, turn.messages(), &offer, !last).await?)
                }
                Action::Act(acts) => Event::Acted(self.act_all(acts).await?),
                Action::Finish(End::Broken(broken)) => return Err(broken),
                Action::Finish(End::Asks { question }) => {
                    return Ok(Outcome::asks(Kind::Chat, question, turn.messages()));
                }
                Action::Finish(End::Answered { content, finish, out_of_steps }) => {
                    return Ok(answered(self.with_unverified(content), finish, out_of_steps));
                }
            };
            action = turn.step(event);
        }
    }

    /// What was offered before is offered again, whatever would suit the goal best by now.
    fn offer(&self, goal: &str) -> Offer {
        let (role, most) = (self.bench.role, self.bench.settings.offered_tools);
        match self.journal.offered() {
            Some(tools) => self.catalogue.offer_again(role, &tools),
            None => {
                let offer = self.catalogue.offer(role, goal, most);
                if !offer.tools.is_empty() {
                    self.journal.offers(&offer.tools);
                }
                offer
            }
        }
    }

    /// All at once; the results in the order of the calls. What cannot be answered to the model ends the turn, after all
    /// others have ended too.
    async fn act_all(&self, acts: Vec<Act>) -> Result<Vec<Observed>, Broken> {
        let ready: Vec<Ready> = acts.into_iter().map(|act| self.ready(act)).collect();
        let acting = join_all(ready.into_iter().map(|act| self.act(act)));
        // A call that may change something waits until the turn is stored. Reads do not, and may take long: the turn is
        // stored while they run.
        let (results, ()) = tokio::join!(acting, self.journal.write_what_cost());
        // A rejection first, whatever else happened.
        if let Some(Err(rejected)) =
            results.iter().find(|result| matches!(result, Err(Broken::Call(CallError::Rejected { .. }))))
        {
            return Err(rejected.clone());
        }
        results.into_iter().collect()
    }

    fn ready(&self, act: Act) -> Ready {
        match act {
            Act::Refuse { name, why } => {
                self.ledger.refused(&name, &why);
                Ready::Refused(why)
            }
            Act::Call { tool, arguments } => Ready::Call(self.prepare(&tool, arguments)),
            Act::Verify(wanted) => Ready::Verify(wanted),
        }
    }

    async fn act(&self, act: Ready) -> Result<Observed, Broken> {
        match act {
            Ready::Refused(why) => Ok(Observed { text: format!("Error: {why}"), failed: true }),
            Ready::Call(prepared) => {
                let returned = self.perform(prepared?).await?;
                let mut text = returned.text;
                if returned.truncated {
                    text.push_str("\n[cut: the result was longer]");
                }
                if returned.failed {
                    text.insert_str(0, "Error: ");
                }
                Ok(Observed { text, failed: returned.failed })
            }
            Ready::Verify(wanted) => Ok(Box::pin(self.verify(wanted)).await),
        }
    }
}

/// An act that can be carried out.
enum Ready {
    Refused(String),
    Call(Result<Prepared, Broken>),
    Verify(VerificationWanted),
}

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
