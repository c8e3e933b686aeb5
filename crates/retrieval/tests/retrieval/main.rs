//! What is found, in which order, and that nothing but the arguments decides it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod backends;
mod features;
mod ranking;
mod vectors;
mod words;

use proptest::prelude::*;
use retrieval::{Document, Language, Tokenizer};

const ENGLISH: Tokenizer = Tokenizer { language: Some(Language::English) };

fn document(id: &str, text: &str) -> Document {
    Document { id: id.to_owned(), group: String::new(), fields: vec![(text.to_owned(), 1)] }
}

/// Texts of a few words each, with words that repeat between texts and some that do not look like words.
fn texts() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        4 => prop::sample::select(vec!["deploy", "deployment", "billing", "gateway", "node", "Müller", "x1"]),
        1 => prop::sample::select(vec!["新しい", "e\u{301}", "task_listHTTP2", "--", "\0", "🙂"]),
    ];
    let text = prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "));
    prop::collection::vec(prop_oneof![3 => text, 1 => any::<String>()], 0..12)
}
