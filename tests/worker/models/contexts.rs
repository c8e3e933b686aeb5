//! Contexts that are shorter than was known.

use std::sync::{Arc, Mutex};

use subjects::{ChatMessage, ChatRole, Handoff, Kind, Work};
use testkit::{Model, ModelRequest, Script, chat};

use super::{Stage, content, details};

/// A chat with so many earlier messages of this many words each.
fn long_chat(messages: usize, words: usize) -> Handoff {
    let mut handoff = chat("What do you think of it all?");
    let Work::Chat(work) = &mut handoff.work else { panic!("a chat") };
    let earlier = ChatMessage { role: ChatRole::User, content: "lorem ipsum ".repeat(words / 2) };
    let reply = ChatMessage { role: ChatRole::Assistant, content: "I see.".to_owned() };
    let pairs = std::iter::repeat_n([earlier, reply], messages).flatten();
    work.messages.splice(0..0, pairs);
    handoff
}

/// A model that refuses requests of more than so many bytes, and the lengths of those it got.
async fn model_refusing_above(limit: usize, why: &'static str) -> (Model, Arc<Mutex<Vec<usize>>>) {
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lengths);
    let answer = move |asked: &ModelRequest| {
        let bytes = asked.body.to_string().len();
        seen.lock().unwrap().push(bytes);
        if bytes > limit { Script::Refuse(400, why.to_owned()) } else { Script::say("Short enough.") }
    };
    (Model::start_answering(answer, |_| Script::Hang).await, lengths)
}

/// The context of a server is learned from its refusal, and the request is made to fit. OpenAI's refusal has
/// several numbers; only one is the limit.
#[tokio::test]
async fn short_context_is_learned_and_respected() {
    for why in [
        "the request exceeds the available context size (6144 tokens), try increasing it",
        "This model's maximum context length is 6144 tokens. However, you requested 9000 tokens (8360 in the \
         messages, 640 in the completion)",
    ] {
        let (model, lengths) = model_refusing_above(24_000, why).await;
        let stage = Stage::around(model, |worker| worker).await;
        let id = stage.orchestrator.publish(&long_chat(2, 1_600)).await;
        let answer = stage.orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(content(&answer), "Short enough.", "{answer:?}");
        assert!(details(&answer).contains("left out"), "{:?}", answer.trace.steps);
        assert_eq!(lengths.lock().unwrap().len(), 2, "{lengths:?}");
    }
}

/// The limit that the server names is above the estimate of what was sent, or it names none: the request gets
/// shorter until the server accepts it.
#[tokio::test]
async fn request_is_shortened_as_often_as_it_needs() {
    for why in [
        "the request exceeds the available context size (1000000 tokens), try increasing it",
        "Please reduce the length of the messages.",
    ] {
        let (model, lengths) = model_refusing_above(14_000, why).await;
        let stage = Stage::around(model, |worker| worker).await;
        let id = stage.orchestrator.publish(&long_chat(12, 400)).await;
        let answer = stage.orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(content(&answer), "Short enough.", "{answer:?}");
        let lengths = lengths.lock().unwrap().clone();
        assert!(
            lengths.len() > 2 && lengths.is_sorted_by(|longer, shorter| longer >= shorter),
            "{lengths:?}"
        );
    }
}
