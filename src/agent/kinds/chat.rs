//! `chat`: a conversation that waits for its next message.

use std::{
    future::ready,
    pin::{Pin, pin},
    time::Duration,
};

use subjects::{Chat, ChatRole, Message};

use crate::{
    agent::{
        Outcome, WorkError, ask_structured::StructuredOptions, ledger::Lane, session::Session,
        structured_outputs::ASSESS_PROMPT,
    },
    context::{request_messages, sanitize_message},
    inference::Hint,
};

/// How long a background task may run on after the work has ended.
const BACKGROUND_GRACE: Duration = Duration::from_secs(2);

/// Answers the last user message of the chat and assesses the input in the background.
pub(in crate::agent) async fn work(session: &mut Session<'_>, chat: &Chat) -> Result<Outcome, WorkError> {
    session.temperature = chat.temperature.unwrap_or(session.temperature);
    session.max_tokens = chat.max_tokens.map(std::num::NonZeroU32::get);
    let messages = request_messages(&chat.messages);
    let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
    let goal = last.or(chat.messages.last()).map_or("", |message| message.content.as_str());
    let session = &*session;
    let work = pin!(session.converse(goal, messages));
    let background = pin!(session.assess(goal));
    session.run_with_background(work, background).await
}

impl Session<'_> {
    /// Runs `work` with a background task beside it and returns the result of `work`. The background task
    /// ends at most [`BACKGROUND_GRACE`] after the work.
    pub(in crate::agent) async fn run_with_background<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = T>>,
        mut background: Pin<&mut impl Future<Output = ()>>,
    ) -> T {
        tokio::select! {
            biased;
            done = &mut work => {
                tokio::select! {
                    biased;
                    () = &mut background => {}
                    () = ready(()) => {
                        // The result of the work must not be lost while the background task is awaited. Both
                        // are polled together, since the task may be waiting for what the journal is writing.
                        let both = async { tokio::join!(background, self.journal.write_if_costly()) };
                        // After a timeout its step stays in the trace as unfinished.
                        drop(tokio::time::timeout(BACKGROUND_GRACE, both).await);
                    }
                }
                done
            }
            () = &mut background => work.await,
        }
    }

    /// O2, O3: asks the model for the type and scope of the input and records them in the trace. A failure is
    /// only visible in the trace.
    pub(in crate::agent) async fn assess(&self, input: &str) {
        /// The beginning of the input is enough to assess it.
        const MAX_BYTES: usize = 8 * 1_024;
        if !self.resources.settings.assess_input {
            return;
        }
        let input = sanitize_message(&input[..input.floor_char_boundary(MAX_BYTES)]);
        let options = StructuredOptions {
            hint: Hint::Fast,
            timeout: self.resources.settings.think_timeout,
            lane: Lane::BACKGROUND,
        };
        if let Ok(assessment) = self.ask_structured(vec![Message::user(input)], ASSESS_PROMPT, options).await
        {
            self.ledger.set_assessment(assessment);
        }
    }
}
