use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value};

use crate::{
    policy::{AgentKind, Origin, allows},
    tools::Entry,
};

/// A tool as it is shown to an agent.
#[derive(Clone, Debug)]
pub struct Shown {
    pub name: String,
    pub title: String,
    pub description: String,
    pub input_schema: Arc<Map<String, Value>>,
}

/// What one agent may call. Help must not tell of more than `tools/list` does, so whoever makes that list gives this.
pub trait Shelf: fmt::Debug + Sync {
    fn tools(&self) -> Vec<Shown>;
}

/// Our own tools, as far as the list of a kind of agent and their scope go. It knows nothing of what an administrator
/// switched off.
#[derive(Clone, Copy, Debug)]
pub struct OwnShelf(pub AgentKind);

impl Shelf for OwnShelf {
    fn tools(&self) -> Vec<Shown> {
        static ALL: LazyLock<Vec<Entry>> = LazyLock::new(crate::tools::all);
        let is_on = |tool: &&Entry| tool.scope.includes(self.0) && allows(self.0, tool.name, &Origin::Own);
        ALL.iter().filter(is_on).map(Shown::from).collect()
    }
}

impl From<&Entry> for Shown {
    fn from(tool: &Entry) -> Self {
        Self {
            name: tool.name.to_owned(),
            title: tool.title.to_owned(),
            description: tool.description.to_owned(),
            input_schema: Arc::clone(&tool.input),
        }
    }
}
