use std::sync::Arc;

use futures_util::future::join_all;
use subjects::{FinishReason, Kind, Message, Stop};

use super::{
    Broken, Outcome,
    session::Session,
    turn::{Act, Action, End, Event, Observed, Turn},
};
use crate::{inference::Finish, tools::CallError};

impl Session<'_> {
    /// Talks with the model until it has answered, carrying out what it asks for on the way.
    pub(super) async fn converse(&self, goal: &str, messages: Vec<Message>) -> Result<Outcome, Broken> {
        let settings = &self.bench.settings;
        let offer = self.catalogue.offer(self.bench.role, goal, settings.offered_tools);
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

    /// All at once; the results in the order of the calls. What cannot be answered to the model ends the turn, after all
    /// others have ended too.
    async fn act_all(&self, acts: Vec<Act>) -> Result<Vec<Observed>, Broken> {
        let results = join_all(acts.into_iter().map(|act| self.act(act))).await;
        // A rejection first, whatever else happened.
        if let Some(Err(rejected)) =
            results.iter().find(|result| matches!(result, Err(Broken::Call(CallError::Rejected { .. }))))
        {
            return Err(rejected.clone());
        }
        results.into_iter().collect()
    }

    async fn act(&self, act: Act) -> Result<Observed, Broken> {
        match act {
            Act::Refuse { name, why } => {
                self.ledger.refused(&name, &why);
                Ok(Observed { text: format!("Error: {why}"), failed: true })
            }
            Act::Call { tool, arguments } => {
                let returned = self.call(&tool, arguments).await?;
                let mut text = returned.text;
                if returned.truncated {
                    text.push_str("\n[cut: the result was longer]");
                }
                if returned.failed {
                    text.insert_str(0, "Error: ");
                }
                Ok(Observed { text, failed: returned.failed })
            }
            Act::Verify(wanted) => Ok(Box::pin(self.verify(wanted)).await),
        }
    }
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
