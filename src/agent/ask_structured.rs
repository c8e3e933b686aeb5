//! O1: asks the model for a structured output in a context of its own, which is discarded afterwards.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subjects::Message;

use super::{
    WorkError,
    ledger::Lane,
    session::{Session, StructuredRequest},
};
use crate::inference::{Finish, Hint, OutputSchema, REPAIR, Reply, after_thoughts};

/// Default limits, since small models tend to write endless lists and sentences. A type may set its own.
const MAX_ITEMS: usize = 12;
const MAX_CHARS: usize = 280;

/// A type that the model can be asked for.
pub(crate) trait StructuredOutput: DeserializeOwned + JsonSchema {
    const NAME: &'static str;
    /// Maximum length of the reply.
    const MAX_TOKENS: u32 = 2_048;

    /// Returns the cell in which the schema is cached: generating it costs more than using it.
    fn schema_cell() -> &'static OnceLock<Arc<Value>>;

    /// Checks rules that the schema cannot express. The error text is sent back to the model.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// How the model is asked for a structured output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StructuredOptions {
    pub(crate) hint: Hint,
    /// Time limit of each of the two tries.
    pub(crate) timeout: Duration,
    pub(crate) lane: Lane,
}

impl Session<'_> {
    /// Asks the model for a `T`. A reply that is not a valid `T` is sent back once with the reason; if the
    /// second reply is invalid too, returns [`WorkError::InvalidOutput`].
    pub(super) async fn ask_structured<T: StructuredOutput>(
        &self,
        messages: Vec<Message>,
        question: &str,
        options: StructuredOptions,
    ) -> Result<T, WorkError> {
        self.ask_structured_with(messages, question, options, &|_| Ok(())).await
    }

    /// Like [`Self::ask_structured`], with a check that depends on the material. It decides whether the first
    /// reply is sent back; what it says about the second is left to the caller.
    pub(super) async fn ask_structured_with<T: StructuredOutput>(
        &self,
        mut messages: Vec<Message>,
        question: &str,
        options: StructuredOptions,
        check: &(dyn Fn(&T) -> Result<(), String> + Sync),
    ) -> Result<T, WorkError> {
        let schema = Arc::clone(T::schema_cell().get_or_init(|| Arc::new(schema::<T>())));
        messages.push(Message::user(question));
        let schema = OutputSchema { name: T::NAME, schema };
        let (hint, lane, max_tokens) = (options.hint, options.lane, T::MAX_TOKENS);
        // An invalid first reply is sent back to the model, so it is usable in any case.
        let is_usable = |_: &Reply| true;
        let request =
            StructuredRequest { messages: &messages, schema: &schema, max_tokens, hint, lane, is_usable };
        let first = self.ask_structured_once(request, options.timeout, T::NAME.to_owned()).await?;
        let why = match parse::<T>(&first.content).and_then(|output| check(&output).map(|()| output)) {
            Ok(output) => return Ok(output),
            Err(_) if first.finish != Finish::Stop => "the answer was too long".to_owned(),
            Err(why) => why,
        };
        messages.push(Message::Assistant { content: first.content, calls: Vec::new() });
        let repair = format!(
            "{REPAIR}: {why}. Answer again with one JSON object that fits the \
             schema, and nothing else."
        );
        messages.push(Message::user(repair));
        let note = format!("{}, asked again: {why}", T::NAME);
        let is_usable = |reply: &Reply| parse::<T>(&reply.content).is_ok();
        let request =
            StructuredRequest { messages: &messages, schema: &schema, max_tokens, hint, lane, is_usable };
        let second = self.ask_structured_once(request, options.timeout, note).await?;
        parse(&second.content).map_err(|why| WorkError::InvalidOutput { name: T::NAME, why })
    }
}

/// Parses a reply, also if the model wrapped it in a code fence or in prose. The error says why for the
/// model.
fn parse<T: StructuredOutput>(content: &str) -> Result<T, String> {
    let content = after_thoughts(content).trim();
    let inner = match (content.find('{'), content.rfind('}')) {
        (Some(from), Some(to)) if from < to => &content[from..=to],
        _ => return Err("there is no JSON object in it".to_owned()),
    };
    let output: T = serde_json::from_str(inner).map_err(|error| error.to_string())?;
    output.check()?;
    Ok(output)
}

/// Generates a schema that servers in strict mode accept: without references, all properties required, no
/// additional ones.
fn schema<T: StructuredOutput>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_strict(&mut schema);
    schema
}

fn make_strict(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("title");
            object.remove("default");
            object.remove("format");
            if object.get("type").is_some_and(|kind| kind == "array") {
                object.entry("maxItems").or_insert_with(|| MAX_ITEMS.into());
            }
            if object.get("type").is_some_and(may_be_text) && !object.contains_key("enum") {
                object.entry("maxLength").or_insert_with(|| MAX_CHARS.into());
            }
            if let Some(Value::Object(properties)) = object.get("properties") {
                let all: Vec<Value> = properties.keys().map(|name| Value::from(name.as_str())).collect();
                object.insert("required".to_owned(), all.into());
                object.insert("additionalProperties".to_owned(), false.into());
            }
            for (_, value) in object.iter_mut().filter(|(name, _)| *name != "properties") {
                make_strict(value);
            }
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                make_all_strict(properties);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_strict),
        _ => {}
    }
}

fn may_be_text(kind: &Value) -> bool {
    kind == "string" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "string"))
}

/// Handles the properties by value only: their names may look like keywords but are none.
fn make_all_strict(properties: &mut Map<String, Value>) {
    properties.values_mut().for_each(make_strict);
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use subjects::Assessment;

    use super::*;

    #[test]
    fn reply_is_parsed_out_of_prose_and_code_fences() {
        let plain = r#"{"type":"quick_fix","scope":"small","components":[],"reasons":[]}"#;
        for content in [
            plain.to_owned(),
            format!("```json\n{plain}\n```"),
            format!("Sure! Here: {plain} Anything else?"),
        ] {
            let found: Assessment = parse(&content).unwrap();
            assert_eq!(found.scope, subjects::WorkScope::Small, "{content}");
        }
        let thinking = format!("<think>{{\"type\": maybe}}</think>{plain}");
        assert!(parse::<Assessment>(&thinking).is_ok());
        for content in ["", "no", "}{", r#"{"type":"huge_fix","scope":"small"}"#, r#"{"scope":"small"}"#] {
            assert!(parse::<Assessment>(content).is_err(), "{content}");
        }
    }

    #[test]
    fn schema_is_accepted_by_strict_servers() {
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
