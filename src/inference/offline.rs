//! A model without a model: rules instead of understanding, the same words for the same question, and it never pretends.
//! It lets a person try everything, tools included, before any model is connected.

mod intent; // which tool a sentence asks for
mod report; // what tools gave back, in words
mod thought; // typed answers

use std::time::Duration;

use subjects::{Message, ToolCall};

use super::{Finish, Listener, Reply, Request, Tokens};

#[derive(Clone, Debug)]
pub(crate) struct Offline {
    /// Thinking time, to see what a slow model does to everything around it.
    delay: Duration,
}

impl Offline {
    pub(crate) const NAME: &'static str = "offline";

    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay }
    }

    pub(super) async fn answer(&self, request: &Request<'_>, listener: &dyn Listener) -> Reply {
        // What is asked beside the work does not take the work's time.
        let is_aside = request.shape.as_ref().is_some_and(|shape| shape.name == "assessment");
        if !self.delay.is_zero() && !is_aside {
            tokio::time::sleep(self.delay).await;
        }
        listener.trying(1);
        let (content, calls) = match &request.shape {
            Some(shape) => (thought::of(shape.name, request.messages), Vec::new()),
            None => said(request),
        };
        if !content.is_empty() {
            listener.said(&content);
        }
        Reply {
            content,
            calls,
            finish: Finish::Stop,
            tokens: Tokens::default(),
            model: Self::NAME.to_owned(),
            tries: 1,
            cost_usd: None,
        }
    }
}

fn said(request: &Request<'_>) -> (String, Vec<ToolCall>) {
    let since = request.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let (asked, since) = match since {
        Some(index) => (request.messages[index].content(), &request.messages[index + 1..]),
        None => ("", request.messages),
    };
    let results: Vec<&Message> =
        since.iter().filter(|message| matches!(message, Message::Tool { .. })).collect();
    if !results.is_empty() {
        return (report::of(&results), Vec::new());
    }
    let calls = intent::of(asked, request);
    if !calls.is_empty() {
        return (String::new(), calls);
    }
    let asked = excerpt(asked, 240);
    let words = format!(
        "No language model is connected, so this is all I can say: I was asked “{asked}”.{}",
        intent::hint(request)
    );
    (words, Vec::new())
}

/// The first words, on one line. No more is looked at than can be shown, however long the text.
fn excerpt(text: &str, longest: usize) -> String {
    let cut = text.floor_char_boundary(longest);
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
