use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::Role;

use super::{
    Allowlist, Control, NameTable,
    rank::{Candidate, Ranking},
};
use crate::{context::tokens_in, inference::Function};

/// A description longer than this costs more than it explains.
const MOST_DESCRIPTION_CHARS: usize = 1_000;

/// A tool as the gateway describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolInfo {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Map<String, Value>,
    /// The gateway says that it changes nothing. What it does not say this of may change anything.
    #[serde(default)]
    pub(crate) only_reads: bool,
}

/// What the gateway offers and the role may call.
#[derive(Debug)]
pub(crate) struct Catalogue {
    tools: BTreeMap<String, ToolInfo>,
    /// In the order of the names, each as a model knows it.
    functions: Vec<Offered>,
    /// Over the names in their order.
    ranking: Ranking,
    names: Arc<NameTable>,
}

/// What one run offers to its model.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Dotted names, best match first.
    pub(crate) tools: Vec<String>,
    pub(crate) functions: Arc<[Arc<Function>]>,
    /// Of all tools that may be called, not only of those offered: `help.list` tells a model of the others.
    pub(crate) names: Arc<NameTable>,
    /// What offering them costs.
    pub(crate) tokens: usize,
}

/// A function and what offering it costs, made once.
#[derive(Clone, Debug)]
struct Offered {
    function: Arc<Function>,
    tokens: usize,
}

impl Offered {
    fn new(function: Function) -> Self {
        let tokens = tokens_in(&function.description) + tokens_in(&function.parameters.to_string());
        Self { function: Arc::new(function), tokens }
    }
}

impl Catalogue {
    pub(crate) fn new(allowed: Allowlist, offered: impl IntoIterator<Item = ToolInfo>) -> Self {
        let tools: BTreeMap<String, ToolInfo> = offered
            .into_iter()
            .filter(|tool| allowed.permits(&tool.name))
            .map(|tool| (tool.name.clone(), tool))
            .collect();
        let candidates =
            tools.values().map(|tool| Candidate { name: &tool.name, description: &tool.description });
        let ranking = Ranking::over(candidates);
        let names = NameTable::over(tools.keys().map(String::as_str), &Control::RESERVED);
        let as_function = |tool: &ToolInfo| Function {
            name: names.name_of(&tool.name).unwrap_or(&tool.name).to_owned(),
            description: tool.description.chars().take(MOST_DESCRIPTION_CHARS).collect(),
            parameters: Value::Object(tool.input_schema.clone()),
        };
        let functions = tools.values().map(|tool| Offered::new(as_function(tool))).collect();
        Self { tools, functions, ranking, names: Arc::new(names) }
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

    pub(crate) fn only_reads(&self, tool: &str) -> bool {
        self.get(tool).is_some_and(|tool| tool.only_reads)
    }

    /// G6: the tools that suit a goal, never all of them.
    pub(crate) fn offer(&self, role: Role, goal: &str, most: usize) -> Offer {
        let chosen = if self.tools.is_empty() { Vec::new() } else { self.ranking.best(goal, most) };
        self.offering(role, &chosen)
    }

    /// The tools that were offered before, as far as they are still there.
    pub(crate) fn offer_again(&self, role: Role, tools: &[String]) -> Offer {
        let place = |tool: &String| self.tools.keys().position(|name| name == tool);
        self.offering(role, &tools.iter().filter_map(place).collect::<Vec<_>>())
    }

    fn offering(&self, role: Role, chosen: &[usize]) -> Offer {
        let all: Vec<&String> = if chosen.is_empty() { Vec::new() } else { self.tools.keys().collect() };
        let tools = chosen.iter().filter_map(|index| all.get(*index)).map(|name| (*name).clone()).collect();
        let ranked = chosen.iter().filter_map(|index| self.functions.get(*index));
        let offered: Vec<&Offered> = ranked.chain(controls(role)).collect();
        Offer {
            tools,
            tokens: offered.iter().map(|offered| offered.tokens).sum(),
            functions: offered.into_iter().map(|offered| Arc::clone(&offered.function)).collect(),
            names: Arc::clone(&self.names),
        }
    }
}

fn controls(role: Role) -> &'static [Offered] {
    static MANAGER: OnceLock<Vec<Offered>> = OnceLock::new();
    let made = || Control::functions(Role::ProjectManager).into_iter().map(Offered::new).collect();
    match role {
        Role::ProjectManager => MANAGER.get_or_init(made),
        Role::ProjectAnalyst => &[],
    }
}
