//! `help.*`: what there is to call, and how things work here.

mod shelf;
mod topics;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use shelf::{Shelf, Shown};
use topics::TOPICS;

use super::{
    Context, Does, Entry, OwnTool, ToolError, check,
    page::{Page, Piece},
};

/// No name of a tool is longer.
const LONGEST_NAME: usize = 256;

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
struct Line {
    /// Give this to `help.get`.
    name: String,
    kind: Kind,
    /// One line.
    about: String,
}

struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ListInput {
    /// Only tools whose name begins so: `db`, `db.task`, `artifact`. Without it, topics are listed too.
    #[schemars(length(max = LONGEST_NAME))]
    family: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

impl OwnTool for List {
    const NAME: &'static str = "help.list";
    const TITLE: &'static str = "List what can be called";
    const DESCRIPTION: &'static str = "Lists the tools that you may call, by name with one line each, and topics that \
        help.get explains.";
    const DOES: Does = Does::Read;
    type Input = ListInput;
    type Output = Piece<Line>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Piece<Line>, ToolError> {
        let page = Page::large(input.limit, input.cursor.as_deref())?;
        let family = input.family.as_deref().map(|family| family.trim_end_matches(['.', '*']));
        let family = family.filter(|family| !family.is_empty());
        check::text("family", family.unwrap_or_default(), LONGEST_NAME)?;
        let is_wanted = |name: &str| {
            family.is_none_or(|family| {
                name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let mut tools = context.shelf.tools();
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let tools = tools.into_iter().filter(|tool| is_wanted(&tool.name)).map(|tool| Line {
            about: first_sentence(&tool.description),
            name: tool.name,
            kind: Kind::Tool,
        });
        let topics = TOPICS.iter().filter(|_| family.is_none()).map(|topic| Line {
            name: topic.name.to_owned(),
            kind: Kind::Topic,
            about: topic.title.to_owned(),
        });
        Ok(page.of_all(tools.chain(topics).collect()))
    }
}

/// A line to choose by; the rest is in `help.get`.
fn first_sentence(description: &str) -> String {
    const MOST_CHARS: usize = 160;
    let line = description.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    sentence.chars().take(MOST_CHARS).collect()
}

struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetInput {
    /// The name of a tool (`db.task.create`) or of a topic (`preferences`).
    #[schemars(length(max = LONGEST_NAME))]
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Explained {
    name: String,
    kind: Kind,
    title: String,
    text: String,
    /// JSON Schema of a tool's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Map<String, Value>>,
}

impl OwnTool for Get {
    const NAME: &'static str = "help.get";
    const TITLE: &'static str = "Explain a tool or a topic";
    const DESCRIPTION: &'static str =
        "Explains one tool in full, with the schema of its arguments, or one topic. help.list has the names.";
    const DOES: Does = Does::Read;
    type Input = GetInput;
    type Output = Explained;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Explained, ToolError> {
        check::words("name", &input.name, LONGEST_NAME)?;
        if let Some(tool) = context.shelf.tools().into_iter().find(|tool| tool.name == input.name) {
            return Ok(Explained {
                name: tool.name,
                kind: Kind::Tool,
                title: tool.title,
                text: tool.description,
                input_schema: Some(Map::clone(&tool.input_schema)),
            });
        }
        let topic = TOPICS.iter().find(|topic| topic.name == input.name);
        let topic = topic.ok_or_else(|| ToolError::not_found("tool or topic", input.name))?;
        Ok(Explained {
            name: topic.name.to_owned(),
            kind: Kind::Topic,
            title: topic.title.to_owned(),
            text: topic.text.to_owned(),
            input_schema: None,
        })
    }
}
