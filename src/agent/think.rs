//! O1: intelligence on demand. One typed question with a context of its own; nothing of it stays behind.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subjects::Message;

use super::{
    Broken,
    ledger::Lane,
    session::{Aside, Session},
};
use crate::inference::{AnswerShape, Finish, Hint};

/// Small models like lists and sentences without end. A form may say otherwise.
const MOST_ITEMS: usize = 12;
const MOST_CHARS: usize = 280;

/// A form that an answer can have.
pub(crate) trait Thought: DeserializeOwned + JsonSchema {
    const NAME: &'static str;
    /// An answer that is longer has lost its way.
    const MOST_TOKENS: u32 = 2_048;

    /// Where the schema is kept once it is made: making it costs more than using it.
    fn kept() -> &'static OnceLock<Arc<Value>>;

    /// What the types alone do not say.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// How a question is put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) hint: Hint,
    pub(crate) within: Duration,
    pub(crate) lane: Lane,
}

impl Session<'_> {
    /// Asks for a `T`. An answer of another form is sent back once, with what is wrong with it.
    pub(super) async fn think<T: Thought>(
        &self,
        mut messages: Vec<Message>,
        question: &str,
        manner: Manner,
    ) -> Result<T, Broken> {
        let schema = Arc::clone(T::kept().get_or_init(|| Arc::new(schema::<T>())));
        messages.push(Message::user(question));
        let shape = AnswerShape { name: T::NAME, schema };
        let (hint, lane, most_tokens) = (manner.hint, manner.lane, T::MOST_TOKENS);
        // The first answer is sent back if it has another form, so it is used in any case.
        let is_usable = |_: &str| true;
        let aside = Aside { messages: &messages, shape: &shape, most_tokens, hint, lane, is_usable };
        let first = self.ask_aside(aside, manner.within, T::NAME.to_owned()).await?;
        let why = match read::<T>(&first.content) {
            Ok(thought) => return Ok(thought),
            Err(_) if first.finish != Finish::Stop => "the answer was too long".to_owned(),
            Err(why) => why,
        };
        messages.push(Message::Assistant { content: first.content, calls: Vec::new() });
        let repair = format!(
            "That is not of the form asked for: {why}. Answer again with one JSON object that fits the schema, and \
             nothing else."
        );
        messages.push(Message::user(repair));
        let note = format!("{}, asked again: {why}", T::NAME);
        let is_usable = |content: &str| read::<T>(content).is_ok();
        let aside = Aside { messages: &messages, shape: &shape, most_tokens, hint, lane, is_usable };
        let second = self.ask_aside(aside, manner.within, note).await?;
        read(&second.content).map_err(|why| Broken::WrongForm { name: T::NAME, why })
    }
}

/// Reads an answer, also out of the code fence or the prose that models like to put around it.
fn read<T: Thought>(content: &str) -> Result<T, String> {
    // Some models think aloud first.
    let content = content.rsplit_once("</think>").map_or(content, |(_, answer)| answer).trim();
    let inner = match (content.find('{'), content.rfind('}')) {
        (Some(from), Some(to)) if from < to => &content[from..=to],
        _ => return Err("there is no JSON object in it".to_owned()),
    };
    let thought: T = serde_json::from_str(inner).map_err(|error| error.to_string())?;
    thought.check()?;
    Ok(thought)
}

/// The form as a schema that strict servers take: everything in one place, nothing optional, nothing extra.
fn schema<T: Thought>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    strict(&mut schema);
    schema
}

fn strict(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("title");
            object.remove("default");
            object.remove("format");
            if object.get("type").is_some_and(|kind| kind == "array") {
                object.entry("maxItems").or_insert_with(|| MOST_ITEMS.into());
            }
            if object.get("type").is_some_and(may_be_text) && !object.contains_key("enum") {
                object.entry("maxLength").or_insert_with(|| MOST_CHARS.into());
            }
            if let Some(Value::Object(properties)) = object.get("properties") {
                let all: Vec<Value> = properties.keys().map(|name| Value::from(name.as_str())).collect();
                object.insert("required".to_owned(), all.into());
                object.insert("additionalProperties".to_owned(), false.into());
            }
            for (_, value) in object.iter_mut().filter(|(name, _)| *name != "properties") {
                strict(value);
            }
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                strict_all(properties);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strict),
        _ => {}
    }
}

fn may_be_text(kind: &Value) -> bool {
    kind == "string" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "string"))
}

/// The names of properties are not keywords, even if they look like them.
fn strict_all(properties: &mut Map<String, Value>) {
    properties.values_mut().for_each(strict);
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use subjects::Assessment;

    use super::*;

    #[test]
    fn an_answer_is_found_in_what_models_put_around_it() {
        let plain = r#"{"type":"quick_fix","scope":"small","components":[],"reasons":[]}"#;
        for content in [
            plain.to_owned(),
            format!("```json\n{plain}\n```"),
            format!("Sure! Here: {plain} Anything else?"),
        ] {
            let found: Assessment = read(&content).unwrap();
            assert_eq!(found.scope, subjects::WorkScope::Small, "{content}");
        }
        let thinking = format!("<think>{{\"type\": maybe}}</think>{plain}");
        assert!(read::<Assessment>(&thinking).is_ok());
        for content in ["", "no", "}{", r#"{"type":"huge_fix","scope":"small"}"#, r#"{"scope":"small"}"#] {
            assert!(read::<Assessment>(content).is_err(), "{content}");
        }
    }

    #[test]
    fn the_schema_is_one_that_strict_servers_take() {
        let schema = schema::<Assessment>();
        assert_eq!(schema["additionalProperties"], json!(false));
        let required: Vec<&str> =
            schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(required.len(), schema["properties"].as_object().unwrap().len());
        assert!(!schema.to_string().contains("$ref"), "{schema}");
        let reasons = &schema["properties"]["reasons"];
        assert_eq!((&reasons["maxItems"], &reasons["items"]["maxLength"]), (&json!(12), &json!(280)));
    }
}
