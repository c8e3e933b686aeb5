use std::{collections::BTreeMap, sync::Arc};

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
}

/// What the gateway offers and the role may call.
#[derive(Debug)]
pub(crate) struct Catalogue {
    tools: BTreeMap<String, ToolInfo>,
    /// Over the names in their order.
    ranking: Ranking,
    names: Arc<NameTable>,
}

/// What one run offers to its model.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Dotted names, best match first.
    pub(crate) tools: Vec<String>,
    pub(crate) functions: Arc<[Function]>,
    /// Of all tools that may be called, not only of those offered: `help.list` tells a model of the others.
    pub(crate) names: Arc<NameTable>,
    /// What offering them costs.
    pub(crate) tokens: usize,
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
        let names = Arc::new(NameTable::over(tools.keys().map(String::as_str), &Control::RESERVED));
        Self { tools, ranking, names }
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

    /// G6: the tools that suit a goal, never all of them.
    pub(crate) fn offer(&self, role: Role, goal: &str, most: usize) -> Offer {
        let all: Vec<&ToolInfo> = self.tools.values().collect();
        let chosen: Vec<&ToolInfo> =
            self.ranking.best(goal, most).into_iter().filter_map(|index| all.get(index).copied()).collect();
        let names = &self.names;
        let tools = chosen.iter().filter_map(|tool| {
            Some(Function {
                name: names.to_model(&tool.name)?.to_owned(),
                description: tool.description.chars().take(MOST_DESCRIPTION_CHARS).collect(),
                parameters: Value::Object(tool.input_schema.clone()),
            })
        });
        let functions: Arc<[Function]> = tools.chain(Control::functions(role)).collect();
        let tokens = functions
            .iter()
            .map(|function| tokens_in(&function.description) + tokens_in(&function.parameters.to_string()))
            .sum();
        let tools = chosen.iter().map(|tool| tool.name.clone()).collect();
        Offer { tools, functions, names: Arc::clone(names), tokens }
    }
}
