use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

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
