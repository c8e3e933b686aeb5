//! The tools that the gateway serves and the role may call, and the selection that is offered to a model.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use schema::Validator;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::Role;
use tracing::warn;

use super::{
    Allowlist, Control, NameTable,
    rank::{Candidate, Ranking},
};
use crate::{context::estimate_tokens, inference::Function};

/// A tool as the gateway describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolInfo {
    pub(crate) name: String,
    /// Empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) input_schema: Map<String, Value>,
    /// The gateway declares that the tool has no effect. All other tools may have one.
    #[serde(default)]
    pub(crate) only_reads: bool,
}

impl ToolInfo {
    /// Returns the names of the arguments, separated by spaces.
    fn argument_names(&self) -> String {
        let properties = self.input_schema.get("properties").and_then(Value::as_object);
        let names: Vec<&str> = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        names.join(" ")
    }
}

/// The tools that the gateway serves and the role may call.
#[derive(Debug)]
pub(crate) struct Catalogue {
    tools: BTreeMap<String, ToolInfo>,
    /// In the order of `tools`, each under its model name.
    functions: Vec<OfferedFunction>,
    /// Ranks the tools by their index in `tools`.
    ranking: Ranking,
    names: Arc<NameTable>,
    validators: Validators,
}

/// The validators of tools, built when a tool is first called.
#[derive(Debug, Default)]
struct Validators(Mutex<BTreeMap<String, Arc<Option<Validator>>>>);

impl Validators {
    fn get_or_build(&self, tool: &ToolInfo) -> Arc<Option<Validator>> {
        // No code panics while it holds the lock.
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = built.get(&tool.name) {
            return Arc::clone(validator);
        }
        let validator = Validator::new(&Value::Object(tool.input_schema.clone()));
        if let Err(error) = &validator {
            warn!(tool = tool.name, error, "Schema of a tool is invalid; its arguments are not checked.");
        }
        let validator = Arc::new(validator.ok());
        built.insert(tool.name.clone(), Arc::clone(&validator));
        validator
    }
}

/// The tools that are offered to the model for one handoff.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Dotted names, best match first.
    pub(crate) tools: Vec<String>,
    pub(crate) functions: Arc<[Arc<Function>]>,
    /// Names of all callable tools, not only of the offered ones, since a model can learn of the others from
    /// `help.list`.
    pub(crate) names: Arc<NameTable>,
    /// Estimated tokens of the offer.
    pub(crate) tokens: usize,
}

/// A function and the estimated tokens of offering it.
#[derive(Clone, Debug)]
struct OfferedFunction {
    function: Arc<Function>,
    tokens: usize,
}

impl OfferedFunction {
    fn new(function: Function) -> Self {
        let tokens =
            estimate_tokens(&function.description) + estimate_tokens(&function.parameters.to_string());
        Self { function: Arc::new(function), tokens }
    }
}

impl Catalogue {
    pub(crate) fn new(allowlist: Allowlist, offered: impl IntoIterator<Item = ToolInfo>) -> Self {
        Self::of(Self::permitted(allowlist, offered))
    }

    /// Returns those of the offered tools that may be called, by name.
    pub(super) fn permitted(
        allowlist: Allowlist,
        offered: impl IntoIterator<Item = ToolInfo>,
    ) -> BTreeMap<String, ToolInfo> {
        let permitted = offered.into_iter().filter(|tool| allowlist.permits(&tool.name));
        permitted.map(|tool| (tool.name.clone(), tool)).collect()
    }

    pub(super) fn of(tools: BTreeMap<String, ToolInfo>) -> Self {
        let arguments: Vec<String> = tools.values().map(ToolInfo::argument_names).collect();
        let candidates = tools.values().zip(&arguments).map(|(tool, arguments)| Candidate {
            name: &tool.name,
            title: &tool.title,
            description: &tool.description,
            arguments,
        });
        let ranking = Ranking::new(candidates);
        let names = NameTable::new(tools.keys().map(String::as_str), &Control::RESERVED);
        let as_function = |tool: &ToolInfo| {
            let name = names.model_name(&tool.name).unwrap_or(&tool.name);
            let function = Function::new(name, &tool.description, &Value::Object(tool.input_schema.clone()));
            Function { has_effect: !tool.only_reads, ..function }
        };
        let functions = tools.values().map(|tool| OfferedFunction::new(as_function(tool))).collect();
        Self { tools, functions, ranking, names: Arc::new(names), validators: Validators::default() }
    }

    pub(super) fn has_exactly(&self, tools: &BTreeMap<String, ToolInfo>) -> bool {
        self.tools == *tools
    }

    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &ToolInfo> {
        self.tools.values()
    }

    pub(crate) fn get(&self, tool: &str) -> Option<&ToolInfo> {
        self.tools.get(tool)
    }

    /// Returns what is wrong with the arguments by the tool's own schema, which says more than the model was
    /// shown. A tool without a valid schema checks them itself.
    pub(crate) fn check_arguments(&self, tool: &str, arguments: &Map<String, Value>) -> Result<(), String> {
        let Some(info) = self.get(tool) else { return Ok(()) };
        let validator = self.validators.get_or_build(info);
        let Some(validator) = validator.as_ref() else { return Ok(()) };
        validator.check(&Value::Object(arguments.clone()))
    }

    pub(crate) fn only_reads(&self, tool: &str) -> bool {
        self.get(tool).is_some_and(|tool| tool.only_reads)
    }

    /// G6: offers the tools that match a goal best, at most `max_tools` and never all of several tools.
    pub(crate) fn offer(&self, role: Role, goal: &str, max_tools: usize) -> Offer {
        let chosen = if self.tools.is_empty() { Vec::new() } else { self.ranking.best(goal, max_tools) };
        self.build_offer(role, &chosen)
    }

    /// Like [`Self::offer`], but only tools that read.
    pub(crate) fn offer_reads(&self, role: Role, goal: &str, max_tools: usize) -> Offer {
        let ranked =
            if self.tools.is_empty() { Vec::new() } else { self.ranking.best(goal, self.tools.len()) };
        let reads: Vec<bool> = self.tools.values().map(|tool| tool.only_reads).collect();
        let is_read = |index: &usize| reads.get(*index).copied().unwrap_or_default();
        let chosen: Vec<usize> = ranked.into_iter().filter(is_read).take(max_tools).collect();
        self.build_offer(role, &chosen)
    }

    /// Returns the words of a goal that each of the tools matches, for people who ask why it was offered.
    pub(crate) fn matched_words(&self, goal: &str, tools: &[String]) -> BTreeMap<String, Vec<String>> {
        if tools.is_empty() { BTreeMap::new() } else { self.ranking.matched_words(goal, tools) }
    }

    /// Offers the named tools again, as far as the catalogue still has them.
    pub(crate) fn restore_offer(&self, role: Role, tools: &[String]) -> Offer {
        let place = |tool: &String| self.tools.keys().position(|name| name == tool);
        self.build_offer(role, &tools.iter().filter_map(place).collect::<Vec<_>>())
    }

    fn build_offer(&self, role: Role, chosen: &[usize]) -> Offer {
        let all: Vec<&String> = if chosen.is_empty() { Vec::new() } else { self.tools.keys().collect() };
        let tools = chosen.iter().filter_map(|index| all.get(*index)).map(|name| (*name).clone()).collect();
        let ranked = chosen.iter().filter_map(|index| self.functions.get(*index));
        let offered: Vec<&OfferedFunction> = ranked.chain(controls(role)).collect();
        Offer {
            tools,
            tokens: offered.iter().map(|offered| offered.tokens).sum(),
            functions: offered.into_iter().map(|offered| Arc::clone(&offered.function)).collect(),
            names: Arc::clone(&self.names),
        }
    }
}

fn controls(role: Role) -> &'static [OfferedFunction] {
    static MANAGER: OnceLock<Vec<OfferedFunction>> = OnceLock::new();
    let made = || Control::functions(Role::ProjectManager).into_iter().map(OfferedFunction::new).collect();
    match role {
        Role::ProjectManager => MANAGER.get_or_init(made),
        Role::ProjectAnalyst => &[],
    }
}
