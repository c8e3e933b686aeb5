//! What a built-in tool is: its contract, its context, and its type-erased entry.

use std::{fmt, sync::Arc};

use contract::ToolContract;
use futures_util::{FutureExt, future::BoxFuture};
use schemars::{JsonSchema, generate::SchemaSettings};
use sea_orm::DatabaseExecutor;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{AttributionSlot, LeaseIssuer, Memories, Sandboxes, ToolError, VisibleTools};
use policy::{Caller, MemoryProfile, Scope, ScopedId, Switch};
use store::Store;

/// Whether a tool only reads, or may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Read,
    Write,
}

/// A tool that runs inside the gateway, implemented for its input.
pub trait BuiltInTool:
    ToolContract<Output: Serialize + JsonSchema + Send> + DeserializeOwned + JsonSchema + Send + 'static
{
    const TITLE: &'static str;
    /// Tells the model that chooses tools what the tool does and returns.
    const DESCRIPTION: &'static str;
    const DOES: Does;
    /// M103–M105: ids that every call must name. They are checked before the tool runs.
    const NEEDS: &'static [ScopedId] = &[];
    const SCOPE: Scope = Scope::Both;
    /// The system setting that must be `true` for the tool to be available.
    const GATE: Option<Switch> = None;
    /// G13: whether the tool reaches the network. It then runs only for memory profiles that may do so.
    const REACHES_NETWORK: bool = false;
    /// Whether the result comes as text too, for models. One that only programs read comes once.
    const HAS_TEXT: bool = true;
    /// Whether the tool needs NATS. A gateway without NATS does not offer it.
    const NEEDS_NATS: bool = false;
    /// The result may have as many bytes, also where the gateway gives less. For programs, not for models.
    const MAX_RESULT_BYTES: usize = 0;
    /// Whether [`BuiltInTool::complete`] is called.
    const WAITS: bool = false;

    fn run(
        context: &Context<'_>,
        input: Self,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Completes a result after the transaction was committed and the call recorded, also one that was
    /// recorded under an idempotency key. Here a tool may wait for what it started. An error is what the
    /// caller gets; what was committed stays.
    fn complete(
        _store: &Store,
        _sandboxes: &Sandboxes,
        _leases: &LeaseIssuer,
        _input: Self,
        output: Value,
    ) -> impl Future<Output = Result<Value, ToolError>> + Send {
        async { Ok(output) }
    }
}

/// What a tool runs with: the store, the caller with its memory profile, the trace and the time (G12).
#[derive(Debug)]
pub struct Context<'a> {
    /// For a tool that writes, a transaction, which is rolled back if the tool fails.
    pub db: DatabaseExecutor<'a>,
    pub caller: &'a Caller,
    /// The tools that the caller may call, for help.
    pub visible_tools: &'a dyn VisibleTools,
    pub leases: &'a LeaseIssuer,
    pub sandboxes: &'a Sandboxes,
    pub memories: &'a Memories,
    /// The id of the call in the audit.
    pub call_id: &'a str,
    /// Takes whom the call was made for, if not for the caller.
    pub attribution: &'a AttributionSlot,
    /// The trace of the call, as 32 hexadecimal digits. The audit row has the same.
    pub trace_id: &'a str,
    /// Microseconds since 1970.
    pub now: i64,
}

impl Context<'_> {
    /// Returns the author of a change, for columns such as `updated_by`.
    pub fn author(&self) -> String {
        format!("{}:{}", self.caller.agent.kind(), self.caller.token)
    }

    /// Returns the memory profile of the call.
    pub fn profile(&self) -> &MemoryProfile {
        &self.caller.profile
    }
}

type Run =
    Box<dyn for<'a> Fn(&'a Context<'a>, Value) -> BoxFuture<'a, Result<Value, ToolError>> + Send + Sync>;

type Complete = Box<
    dyn for<'a> Fn(&'a Store, &'a Sandboxes, &'a LeaseIssuer, Value, Value) -> Completing<'a> + Send + Sync,
>;

type Completing<'a> = BoxFuture<'a, Result<Value, ToolError>>;

/// A built-in tool with its input and output types erased.
pub struct Entry {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub does: Does,
    pub needs: &'static [ScopedId],
    pub scope: Scope,
    pub gate: Option<Switch>,
    pub reaches_network: bool,
    pub has_text: bool,
    pub needs_nats: bool,
    pub max_result_bytes: usize,
    pub input: Arc<Map<String, Value>>,
    pub output: Arc<Map<String, Value>>,
    run: Run,
    complete: Option<Complete>,
}

impl Entry {
    pub fn of<T: BuiltInTool>() -> Self {
        let run: Run = Box::new(|context, arguments| {
            async move {
                let input = serde_json::from_value(arguments)
                    .map_err(|error| ToolError::Invalid(error.to_string()))?;
                let output = T::run(context, input).await?;
                serde_json::to_value(output).map_err(|error| ToolError::Invalid(error.to_string()))
            }
            .boxed()
        });
        let complete: Complete = Box::new(|store, sandboxes, leases, arguments, output| {
            async move {
                match serde_json::from_value(arguments) {
                    Ok(input) => T::complete(store, sandboxes, leases, input, output).await,
                    Err(_) => Ok(output),
                }
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
            reaches_network: T::REACHES_NETWORK,
            has_text: T::HAS_TEXT,
            needs_nats: T::NEEDS_NATS,
            max_result_bytes: T::MAX_RESULT_BYTES,
            input: schema::<T>(),
            output: schema::<T::Output>(),
            run,
            complete: T::WAITS.then_some(complete),
        }
    }

    /// Returns whether results of the tool are to be completed with [`Entry::complete`].
    pub fn waits(&self) -> bool {
        self.complete.is_some()
    }

    /// Completes a result, see [`BuiltInTool::complete`].
    pub async fn complete(
        &self,
        store: &Store,
        sandboxes: &Sandboxes,
        leases: &LeaseIssuer,
        arguments: Map<String, Value>,
        output: Value,
    ) -> Result<Value, ToolError> {
        match &self.complete {
            Some(complete) => complete(store, sandboxes, leases, Value::Object(arguments), output).await,
            None => Ok(output),
        }
    }

    /// Runs the tool. Fails with [`ToolError::Invalid`] if the arguments do not match the input type.
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

/// Generates the JSON schema of a type, without `$ref`: some models and clients do not follow references.
fn schema<T: JsonSchema>() -> Arc<Map<String, Value>> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut map = schema.as_object_mut().map(std::mem::take).unwrap_or_default();
    // The name of a Rust type means nothing to a model.
    map.remove("title");
    map.values_mut().for_each(replace_true_schemas);
    map.entry("type").or_insert_with(|| "object".into());
    Arc::new(map)
}

/// Replaces the schema `true` by `{}`, which means the same: clients of the older MCP versions do not accept
/// `true`.
fn replace_true_schemas(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    // Booleans are fine here: `additionalProperties: true`, and default values.
                    Value::Bool(_) if name == "additionalProperties" || name == "default" => {}
                    Value::Bool(true) => *member = Value::Object(Map::new()),
                    other => replace_true_schemas(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_true_schemas),
        _ => {}
    }
}
