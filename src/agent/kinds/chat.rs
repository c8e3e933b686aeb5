use std::{
    future::ready,
    pin::{Pin, pin},
    time::Duration,
};

use subjects::{Chat, ChatRole, Message};

use crate::{
    agent::{Broken, Outcome, ledger::Lane, session::Session, think::Manner, thoughts::ASSESS},
    context::{message_text, request_messages},
    inference::Hint,
};

/// What is beside the work gets so much longer than the work itself.
const TAIL: Duration = Duration::from_secs(2);

/// A conversation that waits for its next message.
pub(in crate::agent) async fn work(session: &mut Session<'_>, chat: &Chat) -> Result<Outcome, Broken> {
    session.temperature = chat.temperature.unwrap_or(session.temperature);
    session.max_tokens = chat.max_tokens.map(std::num::NonZeroU32::get);
    let messages = request_messages(&chat.messages);
    let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
    let goal = last.or(chat.messages.last()).map_or("", |message| message.content.as_str());
    let session = &*session;
    let work = pin!(session.converse(goal, messages));
    let aside = pin!(session.assess(goal));
    session.beside(work, aside).await
}

impl Session<'_> {
    /// Works, and has something else done beside it. The work does not wait for that much longer than it takes itself.
    pub(in crate::agent) async fn beside<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = T>>,
        mut aside: Pin<&mut impl Future<Output = ()>>,
    ) -> T {
        tokio::select! {
            biased;
            done = &mut work => {
                tokio::select! {
                    biased;
                    () = &mut aside => {}
                    () = ready(()) => {
                        // What was answered may not be lost while something less important is waited for. Both are
                        // polled together: the one may be waiting for what the other is writing.
                        let both = async { tokio::join!(aside, self.journal.write_what_cost()) };
                        // Late, it is told as unfinished.
                        drop(tokio::time::timeout(TAIL, both).await);
                    }
                }
                done
            }
            () = &mut aside => work.await,
        }
    }

    /// O2, O3: the input's type and scope, for the trace. That they are not known is in the trace too.
    pub(in crate::agent) async fn assess(&self, input: &str) {
        // What it is shows in its beginning.
        const MOST_BYTES: usize = 8 * 1_024;
        if !self.bench.settings.assess_input {
            return;
        }
        let input = message_text(&input[..input.floor_char_boundary(MOST_BYTES)]);
        let manner =
            Manner { hint: Hint::Fast, within: self.bench.settings.think_timeout, lane: Lane::ASIDE };
        if let Ok(assessment) = self.think(vec![Message::user(input)], ASSESS, manner).await {
            self.ledger.assessed(assessment);
        }
    }
}
