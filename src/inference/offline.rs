//! A deterministic model made of rules. It says that it is no language model, and lets a person try
//! everything, tools included, before a model is connected.

mod dialogue;
mod intent;
mod report;
mod review;
mod steps;
mod structured;

use std::time::Duration;

use dialogue::Asked;
use subjects::{Message, ToolCall};

use super::{Finish, Listener, Reply, Request, Tokens};

/// Answers requests by rules.
#[derive(Clone, Debug)]
pub(crate) struct Offline {
    /// Simulated response time, for testing how the system behaves with a slow model.
    delay: Duration,
}

impl Offline {
    pub(crate) const NAME: &'static str = "offline";

    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay }
    }

    pub(super) async fn answer(&self, request: &Request<'_>, listener: &dyn Listener) -> Reply {
        // The assessment runs in the background and must not delay the work.
        let is_background = request.output_schema.as_ref().is_some_and(|output| output.name == "assessment");
        if !self.delay.is_zero() && !is_background {
            tokio::time::sleep(self.delay).await;
        }
        listener.on_try(1);
        let (content, calls) = match &request.output_schema {
            Some(output) => (structured::output_for(output.name, request.messages), Vec::new()),
            None => converse(request),
        };
        if !content.is_empty() {
            listener.on_text(&content);
        }
        Reply {
            content,
            calls,
            finish: Finish::Stop,
            tokens: Tokens::default(),
            model: Self::NAME.to_owned(),
            tries: 1,
            cost_usd: None,
            note: None,
        }
    }
}

/// Reports the tool results since the last user message, or requests the calls that the message asks for, or
/// says what it understands.
fn converse(request: &Request<'_>) -> (String, Vec<ToolCall>) {
    let since = request.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let since = since.map_or(request.messages, |index| &request.messages[index + 1..]);
    let results: Vec<&Message> =
        since.iter().filter(|message| matches!(message, Message::Tool { .. })).collect();
    let asked = Asked::read(request.messages, intent::command_of);
    if !results.is_empty() {
        return match intent::follow_up(&asked, &results, request).filter(|_| request.may_call) {
            Some(call) => (String::new(), vec![call]),
            None => (report::render(&results), Vec::new()),
        };
    }
    let calls = intent::calls_for(&asked, request);
    if !calls.is_empty() {
        return (String::new(), calls);
    }
    let words = format!(
        "No language model is connected, so I answer by rules. You said “{}”.{}",
        excerpt(&asked.text, 240),
        intent::hint(request)
    );
    (words, Vec::new())
}

/// Returns the first words of a text on one line, cut at `max_bytes`. Reads no more of the text than that.
fn excerpt(text: &str, max_bytes: usize) -> String {
    let cut = text.floor_char_boundary(max_bytes);
    let mut out = String::with_capacity(cut + '…'.len_utf8());
    for word in text[..cut].split_ascii_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if cut < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
