//! `workflow.job` and `workflow.handoff`: what a workflow begins, once for each key.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::ScopeId;

use super::{EffectKind, EndReason};
use crate::{
    sandbox::{Job, MAX_WAIT_SECONDS, Run},
    tool,
};

pub const MAX_KEY_BYTES: usize = 200;

/// `workflow.job`: creates a job, once for each key, and may wait for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunJob {
    pub task_id: ScopeId,
    pub epoch: i64,
    /// Names the job within the workflow. A call with the same key returns the same job; its other
    /// arguments are ignored.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub key: String,
    /// The step that it is for.
    #[schemars(length(min = 1, max = 128))]
    pub step: String,
    pub run: JobArguments,
    /// How many seconds to wait for its end: 0 when not given, 60 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_WAIT_SECONDS))]
    pub wait_seconds: Option<u64>,
}

/// The arguments of `sandbox.run` except `task_id` and `wait_seconds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobArguments(pub Map<String, Value>);

/// The arguments that `workflow.job` has itself.
const OWN: [&str; 2] = ["task_id", "wait_seconds"];

impl JobArguments {
    /// Returns the arguments of `sandbox.run` for a task. Fails with what is wrong with them.
    pub fn into_run(self, task_id: &ScopeId) -> Result<Run, String> {
        let mut arguments = self.0;
        if let Some(own) = OWN.into_iter().find(|name| arguments.contains_key(*name)) {
            return Err(format!("`run` must not contain `{own}`; pass it to `workflow.job` itself"));
        }
        arguments.insert(OWN[0].to_owned(), task_id.as_str().into());
        serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("`run`: {error}"))
    }
}

impl JsonSchema for JobArguments {
    fn schema_name() -> Cow<'static, str> {
        "JobArguments".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Run::json_schema(generator);
        schema.insert(
            "description".to_owned(),
            "The arguments of sandbox.run except task_id and wait_seconds.".into(),
        );
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            OWN.iter().for_each(|name| drop(properties.remove(*name)));
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| OWN.iter().all(|own| name != own));
        }
        schema
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobBegun {
    pub job: Job,
    /// Whether this call began it; false if it already existed.
    pub began: bool,
    /// `cancelled` if it was ended together with its workflow: what a person cancelled alone has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

tool!("workflow.job": RunJob => JobBegun);

/// `workflow.handoff`: hands work to a project manager, once for each key, and may wait for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOff {
    pub task_id: ScopeId,
    pub epoch: i64,
    /// Names the handoff within the workflow. A call with the same key returns the same handoff; its
    /// other arguments are ignored.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub key: String,
    /// The step that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    /// `plan`, `review` or `chat`.
    pub kind: EffectKind,
    /// The payload of that kind. `task_id` of a plan and a review, and `model` of a chat, are filled in.
    pub payload: Map<String, Value>,
    /// How many seconds to wait for the answer: 0 when not given, 60 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_WAIT_SECONDS))]
    pub wait_seconds: Option<u64>,
    /// Cancels the handoff if it is not answered within `wait_seconds`; the answer is then a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub give_up: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandedOff {
    pub handoff_id: String,
    /// Whether this call began it; false if it already existed.
    pub began: bool,
    /// How long ago it was begun, by the gateway's clock, in milliseconds, when this call was made.
    #[serde(default)]
    pub age_ms: i64,
    /// The completion, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Map<String, Value>>,
    /// Why it was ended before it was answered, when this call was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

tool!("workflow.handoff": HandOff => HandedOff);
