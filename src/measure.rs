//! For the benchmarks alone: the cost of parts that cannot be reached from outside.

mod journals;

use std::path::PathBuf;

use subjects::{ChatMessage, ChatRole};

use crate::{
    context::{Budget, Layers, Preamble, request_messages},
    inference::{Form, Hint, Purpose, Request, body_of},
    instructions::Bundle,
};

pub use journals::Journals;

/// Composes a request of so many messages and bytes each time it is called: layers, messages, budget, body. Gives the
/// length of the body.
pub fn composing(messages: usize, bytes: usize) -> impl FnMut() -> usize {
    let bundle = Bundle {
        path: PathBuf::new(),
        baseline: "You are a manager.\n".repeat(100),
        role_instructions: vec!["Be brief.\n".repeat(400)],
        skill: "Projects hold tasks.\n".repeat(100),
        hash: String::new(),
    };
    let preamble = Preamble::new(&bundle, true);
    let content = "x".repeat(bytes / messages.max(1));
    let each = |number: usize| ChatMessage {
        role: if number.is_multiple_of(2) { ChatRole::User } else { ChatRole::Assistant },
        content: content.clone(),
    };
    let chat: Vec<ChatMessage> = (0..messages).map(each).collect();
    let layers = Layers { additional: vec!["Answer in French.".to_owned()], ..Layers::default() };
    move || {
        let system = layers.compose(&preamble);
        let messages = request_messages(&chat);
        let fitted = Budget { tokens: 1_000_000 }.fit(system.tokens(), &messages);
        let request = Request {
            purpose: Purpose::Turn(0),
            messages: fitted.as_ref().map_or(&messages, |fitted| &fitted.messages),
            system,
            tools: [].into(),
            may_call: false,
            shape: None,
            temperature: 0.2,
            max_tokens: None,
            hint: Hint::Usual,
        };
        body_of(&request, "model", Form::Bounded).len()
    }
}
