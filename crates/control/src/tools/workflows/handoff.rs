//! `workflow.handoff`: a handoff of a workflow, once for each key. It is published with the transaction.

use contract::{
    lease::Issue,
    workflow::{EffectKind, HandOff, HandedOff},
};
use policy::{AgentKind, Scope, ScopedId};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use store::{
    Store, clock,
    entity::{workflow, workflow_effect},
};
use subjects::{Body, Encoding, Handoff, HandoffId, Kind, MODEL_ID, SCHEMA_VERSION, ScopeId, Timestamp};
use uuid::Uuid;

use super::{WorkflowBook, answers, effects, publish, refusal, rights, rows, wait};
use crate::{BuiltInTool, Context, Does, LeaseIssuer, NewLease, Sandboxes, ToolError};

/// A completion with its trace.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

impl BuiltInTool for HandOff {
    const TITLE: &'static str = "Hand work of a workflow to a project manager";
    const DESCRIPTION: &'static str = "Publishes a handoff of kind plan, review or chat for a workflow, once \
        for each key: the same key gives the same handoff. With `wait_seconds` its answer comes back once \
        there is one. `give_up` ends it. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = MAX_RESULT_BYTES;
    const WAITS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<HandedOff, ToolError> {
        wait::check(input.wait_seconds)?;
        effects::check(&input.key, input.step.as_deref())?;
        let kind = kind_of(input.kind)?;
        // Of several calls with one key, one has the workflow locked; the others find what it began.
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        if let Some(effect) = effects::find(&context.db, &row.task_id, &input.key).await? {
            if effect.kind != input.kind.as_str() {
                return Err(refusal::key_in_use(&input.key, &effect.kind));
            }
            let answer = answers::of(&effect);
            if input.give_up && answer.is_none() && effect.ended_at.is_none() {
                WorkflowBook::of(context).give_up(&effect).await?;
            }
            let age_ms = context.now.saturating_sub(effect.began_at).max(0) / 1_000;
            let end_reason = effects::end_reason(&effect)?;
            return Ok(HandedOff { handoff_id: effect.id, began: false, age_ms, answer, end_reason });
        }
        if input.give_up {
            return Err(ToolError::not_found("handoff", input.key));
        }
        let handoff = build(&row, &input, kind, context.now)?;
        let lease_id = issue_and_publish(context, &row, &handoff).await?;
        let effect = workflow_effect::Model {
            task_id: row.task_id,
            key: input.key,
            kind: input.kind.as_str().to_owned(),
            id: handoff.id.to_string(),
            step: input.step,
            lease_id: Some(lease_id),
            epoch: input.epoch,
            began_at: context.now,
            ended_at: None,
            end_reason: None,
            answer: None,
            cost_usd: None,
        };
        let handoff_id = effect.id.clone();
        effects::insert(&context.db, effect).await?;
        Ok(HandedOff { handoff_id, began: true, age_ms: 0, answer: None, end_reason: None })
    }

    /// Waits for the answer.
    async fn complete(
        store: &Store,
        sandboxes: &Sandboxes,
        leases: &LeaseIssuer,
        input: Self,
        mut output: Value,
    ) -> Result<Value, ToolError> {
        if output.get("answer").is_some() {
            return Ok(output);
        }
        let Some(Ok(id)) = output["handoff_id"].as_str().map(str::parse::<HandoffId>) else {
            return Ok(output);
        };
        let until = wait::until(input.wait_seconds);
        let HandOff { epoch, give_up, key, .. } = &input;
        let awaited =
            answers::Awaited { task: input.task_id.as_str(), epoch: *epoch, key, id, is_giving_up: *give_up };
        if let Some(answer) = answers::wait(store, sandboxes, leases, &awaited, until).await? {
            output["answer"] = Value::Object(answer);
        }
        Ok(output)
    }
}

fn kind_of(kind: EffectKind) -> Result<Kind, ToolError> {
    match kind {
        EffectKind::Job => {
            let why = "`kind` must be plan, review or chat; workflow.job runs jobs";
            Err(ToolError::Invalid(why.to_owned()))
        }
        kind => kind.as_str().parse().map_err(|_| {
            ToolError::Invalid(format!("`kind` is {}, which this gateway cannot hand off", kind.as_str()))
        }),
    }
}

/// Returns the id of a handoff: the same for the same workflow and key, until the workflow is restarted.
fn id_of(row: &workflow::Model, key: &str) -> Result<HandoffId, ToolError> {
    let name = format!("workflow\n{}\n{}\n{key}", row.task_id, row.restarts);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(name)[..16]);
    let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
    id.to_string().parse().map_err(|_| ToolError::Invalid("the handoff id is not a valid UUID".to_owned()))
}

/// Builds a handoff, checked as the workers check it.
fn build(row: &workflow::Model, input: &HandOff, kind: Kind, now: i64) -> Result<Handoff, ToolError> {
    let invalid = |why: String| ToolError::Invalid(format!("`payload`: {why}"));
    let mut payload = input.payload.clone();
    let (name, own) = match kind {
        Kind::Chat => ("model", MODEL_ID),
        _ => ("task_id", row.task_id.as_str()),
    };
    match payload.get(name) {
        Some(given) if given != own => {
            return Err(invalid(format!("{name} is {own}, which is filled in; leave it out")));
        }
        _ => drop(payload.insert(name.to_owned(), own.into())),
    }
    let issued_at = Timestamp::new(clock::from_micros(now)).unwrap_or_else(|_| Timestamp::now());
    let envelope = json!({
        "schema_version": SCHEMA_VERSION,
        "handoff_id": id_of(row, &input.key)?,
        "kind": kind,
        "issued_at": issued_at,
        "scope": { "user_id": row.user_id, "project_id": row.project_id, "task_id": row.task_id },
        "payload": payload,
    });
    let body = subjects::encode_json(&envelope);
    let handoff = Handoff::decode(kind, &Body::inspect(Encoding::Json, &body));
    let handoff = handoff.map_err(|refusal| invalid(refusal.to_string()))?;
    check_known(&input.payload, &handoff)?;
    Ok(handoff)
}

/// Fails if the payload has a field that its kind does not have: workers would ignore it.
fn check_known(given: &Map<String, Value>, handoff: &Handoff) -> Result<(), ToolError> {
    let encoded = handoff.encode(Encoding::Json).unwrap_or_default();
    let encoded: Value = serde_json::from_slice(&encoded).unwrap_or_default();
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let unknown =
        given.iter().find(|(name, value)| !is_empty(value) && encoded["payload"].get(name).is_none());
    match unknown {
        None => Ok(()),
        Some((name, _)) => {
            Err(ToolError::Invalid(format!("`payload`: a {} has no field `{name}`", handoff.kind())))
        }
    }
}

/// Issues the lease of a handoff and adds its message to the transaction. Returns the id of the lease.
async fn issue_and_publish(
    context: &Context<'_>,
    row: &workflow::Model,
    handoff: &Handoff,
) -> Result<String, ToolError> {
    let id = |id: &str| id.parse::<ScopeId>().ok();
    let lease = Issue {
        project_id: row.project_id.as_deref().and_then(id),
        task_id: id(&row.task_id),
        handoff_id: id(&handoff.id.to_string()),
        tools: rights::tools_of(row),
        ..Issue::new(AgentKind::ProjectManager, id(&row.user_id))
    };
    let new = NewLease { lease, parent_id: None, issued_by: context.author() };
    let profile = rights::profile_of(&context.db, row).await?;
    let (lease, issued) = context.leases.issue_with(&context.db, new, profile).await?;
    let (task, trace) = (&row.task_id, traceparent(context));
    publish::begin(&context.db, context.sandboxes, handoff, task, &issued.lease, trace, context.now).await?;
    Ok(lease.id)
}

/// Returns the trace of the call, which the handoff is part of.
fn traceparent(context: &Context<'_>) -> Option<String> {
    let is_trace = context.trace_id.len() == 32 && context.trace_id.bytes().any(|byte| byte != b'0');
    let span = Uuid::new_v4().simple().to_string();
    is_trace.then(|| format!("00-{}-{}-01", context.trace_id, &span[..16]))
}
