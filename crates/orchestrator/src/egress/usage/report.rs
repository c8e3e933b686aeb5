//! What a provider says about usage, in one document or event. Servers write it in many ways, so it is read
//! leniently; a name that occurs twice, or in two spellings, counts with the larger number.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::Tokens;

/// A larger number is not a count of tokens.
const MAX_TOKENS: u64 = 1 << 40;

/// What a provider has reported so far. Parts that it did not report are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Report {
    pub(in super::super) prompt: Option<u64>,
    pub(in super::super) completion: Option<u64>,
    total: Option<u64>,
    /// Something that was reported could not be read.
    pub(in super::super) is_unreadable: bool,
}

impl Report {
    /// Reads a document or an event. One that is not JSON is unreadable.
    pub(super) fn read(json: &[u8]) -> Self {
        let mut report = Self::default();
        match serde_json::from_slice::<Pairs<'_>>(json) {
            Ok(reply) => report.read_reply(&reply, true),
            Err(_) => report.is_unreadable = true,
        }
        report
    }

    /// Takes the larger of each part: some servers report with every event, and some in parts.
    pub(super) fn merge(&mut self, other: Self) {
        self.prompt = self.prompt.max(other.prompt);
        self.completion = self.completion.max(other.completion);
        self.total = self.total.max(other.total);
        self.is_unreadable |= other.is_unreadable;
    }

    /// Returns whether each part was reported. Nothing has to be said about a part of which there is none.
    pub(in super::super) fn is_complete(&self, otherwise: Tokens) -> bool {
        self.prompt.is_some() && (self.completion.is_some() || otherwise.completion == 0)
    }

    /// Returns the tokens, with other numbers for the parts that were not reported. What the total has above
    /// the parts counts as completion: some servers leave reasoning out there.
    pub(in super::super) fn tokens(&self, otherwise: Tokens) -> Tokens {
        let prompt = self.prompt.unwrap_or(otherwise.prompt);
        let completion = self.completion.unwrap_or(otherwise.completion);
        let above = self.total.unwrap_or_default().saturating_sub(prompt);
        Tokens { prompt, completion: completion.max(above) }
    }

    /// Reads `usage` of a reply, also of the reply that an event of a stream contains.
    fn read_reply(&mut self, reply: &Pairs<'_>, is_outer: bool) {
        for (name, value) in &reply.0 {
            match name.as_ref() {
                "usage" => self.read_usage(value),
                "response" | "message" if is_outer => {
                    if let Ok(inner) = serde_json::from_str::<Pairs<'_>>(value.get()) {
                        self.read_reply(&inner, false);
                    }
                }
                _ => {}
            }
        }
    }

    fn read_usage(&mut self, usage: &RawValue) {
        if usage.get() == "null" {
            return;
        }
        let Ok(Pairs(members)) = serde_json::from_str::<Pairs<'_>>(usage.get()) else {
            self.is_unreadable = true;
            return;
        };
        let (mut read, mut created, mut cached) = (Self::default(), None, None);
        for (name, value) in members {
            let part = match name.as_ref() {
                "prompt_tokens" | "input_tokens" => &mut read.prompt,
                "completion_tokens" | "output_tokens" => &mut read.completion,
                "total_tokens" => &mut read.total,
                // Of Anthropic, which does not count them as input.
                "cache_creation_input_tokens" => &mut created,
                "cache_read_input_tokens" => &mut cached,
                _ => continue,
            };
            match count(value) {
                Ok(tokens) => *part = (*part).max(tokens),
                Err(Unreadable) => read.is_unreadable = true,
            }
        }
        let cache = created.unwrap_or_default() + cached.unwrap_or_default();
        read.prompt = read.prompt.map(|prompt| prompt + cache);
        self.merge(read);
    }
}

struct Unreadable;

/// Reads a number of tokens: a whole number, one with a fraction, or one in a text. `None` if it is null.
fn count(value: &RawValue) -> Result<Option<u64>, Unreadable> {
    let number = match serde_json::from_str(value.get()) {
        Ok(Value::Null) => return Ok(None),
        Ok(Value::Number(number)) => number.as_f64(),
        Ok(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    // Exact, because `MAX_TOKENS` is.
    let is_count = |number: &f64| (0.0..=MAX_TOKENS as f64).contains(number);
    number.filter(is_count).map(|number| Some(number.ceil() as u64)).ok_or(Unreadable)
}

/// The members of an object, also those whose name occurs twice.
struct Pairs<'j>(Vec<(Cow<'j, str>, &'j RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = members.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}
