use std::{fmt, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use schemars::{JsonSchema, generate::SchemaSettings};
use sea_orm::DatabaseExecutor;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Shelf, ToolError};
use crate::policy::{Bound, Caller, Scope, ScopedId, Switch};

/// Whether a tool changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Read,
    Write,
}

/// A tool that runs in here.
pub trait OwnTool: 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    /// For the model that decides whether to call it: what it does, and what comes back.
    const DESCRIPTION: &'static str;
    const DOES: Does;
    /// M103–M105: the ids that every call must name. They are checked before the tool sees the call.
    const NEEDS: &'static [ScopedId] = &[];
    const SCOPE: Scope = Scope::Both;
    /// The system setting that has to be `true`.
    const GATE: Option<Switch> = None;
    type Input: DeserializeOwned + JsonSchema + Send;
    type Output: Serialize + JsonSchema + Send;

    fn run(
        context: &Context<'_>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// What a tool works with.
#[derive(Debug)]
pub struct Context<'a> {
    /// For a tool that writes, the transaction; what it wrote is undone when it fails.
    pub db: DatabaseExecutor<'a>,
    pub caller: &'a Caller,
    /// What the caller may call.
    pub shelf: &'a dyn Shelf,
    /// Microseconds since 1970.
    pub now: i64,
}

impl Context<'_> {
    /// The user and the task that the caller is confined to, if it is.
    pub fn bound(&self) -> Option<&Bound> {
        self.caller.agent.bound()
    }

    /// Who did it, for `updated_by` and its like.
    pub fn author(&self) -> String {
        format!("{}:{}", self.caller.agent.kind(), self.caller.token)
    }
}

type Run =
    Box<dyn for<'a> Fn(&'a Context<'a>, Value) -> BoxFuture<'a, Result<Value, ToolError>> + Send + Sync>;

/// A tool with its types taken off.
pub struct Entry {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub does: Does,
    pub needs: &'static [ScopedId],
    pub scope: Scope,
    pub gate: Option<Switch>,
    pub input: Arc<Map<String, Value>>,
    pub output: Arc<Map<String, Value>>,
    run: Run,
}

impl Entry {
    pub fn of<T: OwnTool>() -> Self {
        let run: Run = Box::new(|context, arguments| {
            async move {
                let input = serde_json::from_value(arguments)
                    .map_err(|error| ToolError::Invalid(error.to_string()))?;
                let output = T::run(context, input).await?;
                serde_json::to_value(output).map_err(|error| ToolError::Invalid(error.to_string()))
            }
            .boxed()
        });
        Self {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            does: T::DOES,
            needs: T::NEEDS,
            scope: T::SCOPE,
            gate: T::GATE,
            input: schema::<T::Input>(),
            output: schema::<T::Output>(),
            run,
        }
    }

    pub async fn run(
        &self,
        context: &Context<'_>,
        arguments: Map<String, Value>,
    ) -> Result<Value, ToolError> {
        (self.run)(context, Value::Object(arguments)).await
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Without references: some models and clients do not follow them.
fn schema<T: JsonSchema>() -> Arc<Map<String, Value>> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut map = schema.as_object_mut().map(std::mem::take).unwrap_or_default();
    // The name of a Rust type tells a model nothing.
    map.remove("title");
    map.values_mut().for_each(spell_out);
    map.entry("type").or_insert_with(|| "object".into());
    Arc::new(map)
}

/// `true` for "anything" is a schema in the newer era alone; `{}` is one in both.
fn spell_out(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    // As in `additionalProperties: true`, where a truth value is what is meant.
                    Value::Bool(_) if name == "additionalProperties" || name == "default" => {}
                    Value::Bool(true) => *member = Value::Object(Map::new()),
                    other => spell_out(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        _ => {}
    }
}
