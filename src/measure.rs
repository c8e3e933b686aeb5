//! Entry points for the benchmarks, for code that cannot be reached from outside the crate.

mod journals;

use std::path::PathBuf;

use subjects::{ChatMessage, ChatRole};

use crate::{
    config::Profile,
    context::{Budget, Layers, Preamble, request_messages},
    inference::{Hint, Purpose, Request, encode_plain_body},
    instructions::Bundle,
};

pub use journals::Journals;

/// Returns a function that composes a request of `messages` messages with `bytes` bytes in total: layers,
/// messages, budget, body. Each call returns the length of the body in bytes.
pub fn request_composer(messages: usize, bytes: usize) -> impl FnMut() -> usize {
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
    let profile = Profile::default();
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
            output_schema: None,
            temperature: 0.2,
            is_default_temperature: true,
            time_limit: None,
            max_tokens: None,
            hint: Hint::Usual,
            lease: None,
            permit: None,
        };
        encode_plain_body(&request, &profile).len()
    }
}
