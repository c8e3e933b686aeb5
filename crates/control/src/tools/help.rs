//! `help.*`: lists the tools that the caller may call, and explains tools and topics.

mod topics;

use contract::{Page, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use topics::TOPICS;

use crate::{BuiltInTool, Context, Does, Entry, ToolError, arguments::check, queries::page::PageRequest};

/// Maximum length of the name of a tool or topic.
const MAX_NAME_BYTES: usize = 256;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<List>(), Entry::of::<Get>()]
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Tool,
    Topic,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListItem {
    /// Give this to `help.get`.
    name: String,
    kind: Kind,
    /// One line.
    about: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only tools whose name begins so: `db`, `db.task`, `artifact`. Without it, topics are listed too.
    #[schemars(length(max = MAX_NAME_BYTES))]
    family: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("help.list": List => Page<ListItem>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List what can be called";
    const DESCRIPTION: &'static str = "Lists the tools that you may call, by name with one line each, and \
        topics that help.get explains.";
    const DOES: Does = Does::Read;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<ListItem>, ToolError> {
        let request = PageRequest::large(input.limit, input.cursor.as_deref())?;
        let family = input.family.as_deref().map(|family| family.trim_end_matches(['.', '*']));
        let family = family.filter(|family| !family.is_empty());
        check::text("family", family.unwrap_or_default(), MAX_NAME_BYTES)?;
        let is_wanted = |name: &str| {
            family.is_none_or(|family| {
                name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let mut tools = context.visible_tools.list();
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let tools = tools.into_iter().filter(|tool| is_wanted(&tool.name)).map(|tool| ListItem {
            about: first_sentence(&tool.description),
            name: tool.name,
            kind: Kind::Tool,
        });
        let topics = TOPICS.iter().filter(|_| family.is_none()).map(|topic| ListItem {
            name: topic.name.to_owned(),
            kind: Kind::Topic,
            about: topic.title.to_owned(),
        });
        Ok(request.paginate(tools.chain(topics).collect()))
    }
}

/// Returns the first sentence of a description, shortened; `help.get` returns all of it.
fn first_sentence(description: &str) -> String {
    const MAX_CHARS: usize = 160;
    let line = description.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    sentence.chars().take(MAX_CHARS).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The name of a tool (`db.task.create`) or of a topic (`preferences`).
    #[schemars(length(max = MAX_NAME_BYTES))]
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct GetOutput {
    name: String,
    kind: Kind,
    title: String,
    text: String,
    /// JSON Schema of a tool's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Map<String, Value>>,
}

tool!("help.get": Get => GetOutput);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Explain a tool or a topic";
    const DESCRIPTION: &'static str =
        "Explains one tool in full, with the schema of its arguments, or one topic. help.list has the names.";
    const DOES: Does = Does::Read;

    async fn run(context: &Context<'_>, input: Self) -> Result<GetOutput, ToolError> {
        check::non_blank("name", &input.name, MAX_NAME_BYTES)?;
        if let Some(tool) = context.visible_tools.list().into_iter().find(|tool| tool.name == input.name) {
            return Ok(GetOutput {
                name: tool.name,
                kind: Kind::Tool,
                title: tool.title,
                text: tool.description,
                input_schema: Some(Map::clone(&tool.input_schema)),
            });
        }
        let topic = TOPICS.iter().find(|topic| topic.name == input.name);
        let topic = topic.ok_or_else(|| ToolError::not_found("tool or topic", input.name))?;
        Ok(GetOutput {
            name: topic.name.to_owned(),
            kind: Kind::Topic,
            title: topic.title.to_owned(),
            text: topic.text.to_owned(),
            input_schema: None,
        })
    }
}
