//! Runs built-in tools. A tool that writes runs in one transaction with its announcement and its key.

use rmcp::model::CallToolResult;
use sea_orm::{DatabaseExecutor, DbErr, EntityTrait};
use serde_json::{Map, Value};
use tracing::error;

use super::{CallError, Calls, Outcome, Request, SideEffect, ToolReply, keys};
use policy::{Agent, Caller, Permitted, Standing};

use audit::{
    Announcement, ClaimOutcome, Decision, KeyClaim, KeyOutcome, Record, Status, Unavailable, claim_key,
    in_flight_row, row_of_call, settle_key,
};
use control::{AttributedOutcome, Attribution, AttributionSlot, Context, Does, Entry, ToolError};
use registry::catalogue::CallerTools;
use store::{clock, entity::in_flight};

/// Time without an audit row after which another instance considers the call lost.
const LOST_AFTER_US: i64 = 60_000_000;

impl Calls {
    pub(super) async fn run_built_in(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &mut Record,
        request: Request,
    ) -> Result<Outcome, CallError> {
        let arguments = entry.waits().then(|| request.arguments.clone());
        let (reply, announcement) = match entry.does {
            Does::Read => (self.read(entry, permitted, &mut *record, request).await?, Announcement::None),
            Does::Write => self.write(entry, permitted, record, request).await?,
        };
        let reply = self.limit_size_to(entry.max_result_bytes, reply);
        let side_effect = match &announcement {
            Announcement::None => SideEffect::None,
            Announcement::Made | Announcement::WithKey(_) => SideEffect::Possible,
        };
        let outcome = self.finish(record, reply, announcement, side_effect).await;
        match (outcome, arguments) {
            (Outcome::Answered(result), Some(arguments)) => {
                Ok(Outcome::Answered(Box::new(self.complete(entry, arguments, *result).await)))
            }
            (outcome, _) => Ok(outcome),
        }
    }

    /// Completes the result of a tool that waits for what it started. The call is recorded already.
    async fn complete(
        &self,
        entry: &Entry,
        arguments: Map<String, Value>,
        result: CallToolResult,
    ) -> CallToolResult {
        match result.structured_content.clone().filter(|_| result.is_error != Some(true)) {
            Some(output) => {
                let (store, sandboxes, leases) = (&self.store, &self.sandboxes, &self.leases);
                let completed = entry.complete(store, sandboxes, leases, arguments, output).await;
                // What was begun stays, whatever becomes of the wait for it.
                let reply = to_reply(entry, completed).unwrap_or_else(|_| store_unavailable());
                self.limit_size_to(entry.max_result_bytes, reply).result
            }
            None => result,
        }
    }

    fn caller_tools(&self, permitted: &Permitted) -> CallerTools {
        CallerTools {
            catalogue: self.catalogue.cached(),
            standing: Standing::Valid(permitted.caller().clone()),
        }
    }

    fn context<'a>(
        &'a self,
        db: DatabaseExecutor<'a>,
        permitted: &'a Permitted,
        visible_tools: &'a CallerTools,
        record: &'a Record,
        attribution: &'a AttributionSlot,
    ) -> Context<'a> {
        let (caller, leases, sandboxes) = (permitted.caller(), &*self.leases, &*self.sandboxes);
        let (call_id, trace_id) = (&*record.call_id, record.trace_id.as_deref().unwrap_or_default());
        let (memories, now) = (&*self.memories, clock::now());
        Context {
            db,
            visible_tools,
            caller,
            leases,
            sandboxes,
            memories,
            call_id,
            attribution,
            trace_id,
            now,
        }
    }

    async fn read(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &mut Record,
        request: Request,
    ) -> Result<ToolReply, CallError> {
        let db = DatabaseExecutor::from(self.store.read());
        let visible_tools = self.caller_tools(permitted);
        let mut attribution = AttributionSlot::default();
        let context = self.context(db, permitted, &visible_tools, record, &attribution);
        let ran = entry.run(&context, request.arguments).await;
        drop(context);
        let outcome =
            attribution.take().map(|attribution| attribute(record, attribution)).unwrap_or_default();
        Ok(with_outcome(to_reply(entry, ran)?, outcome))
    }

    /// Runs a tool that writes. Its effect, the answer under its key and its announcement are one
    /// transaction.
    async fn write(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &mut Record,
        mut request: Request,
    ) -> Result<(ToolReply, Announcement), CallError> {
        let digest = record.arguments_digest.clone().unwrap_or_default();
        let holder = keys::holder(permitted.caller());
        let refused = |Unavailable| CallError::Unavailable {
            reason: "audit_unavailable",
            announcement: Announcement::None,
        };
        self.ledger.ensure_accepting().map_err(refused)?;
        let write = self.store.write().await?;
        if let Some(key) = &request.key {
            let kept = i64::try_from(self.limits.keep_keys.as_micros()).unwrap_or(i64::MAX);
            let claim = KeyClaim {
                holder: holder.clone(),
                key: key.clone(),
                tool: request.tool.clone(),
                arguments_digest: digest.clone(),
                expires_at: clock::now().saturating_add(kept),
            };
            if let ClaimOutcome::Existing(known) = claim_key(&*write, &claim, &record.call_id).await? {
                drop(write);
                // A key of a built-in tool is committed together with its answer, so an existing one has an
                // answer.
                let reply = keys::recorded_reply(&known, &request, &digest).unwrap_or_else(keys::in_doubt);
                if reply.status == Status::Replayed {
                    self.attribute_as_first(permitted.caller(), record, &known.call_id).await?;
                }
                return Ok((reply, Announcement::None));
            }
        }
        let arguments = std::mem::take(&mut request.arguments);
        let visible_tools = self.caller_tools(permitted);
        let db = DatabaseExecutor::from(&*write);
        let mut attribution = AttributionSlot::default();
        let context = self.context(db, permitted, &visible_tools, record, &attribution);
        let reply = to_reply(entry, entry.run(&context, arguments).await)?;
        drop(context);
        let outcome =
            attribution.take().map(|attribution| attribute(record, attribution)).unwrap_or_default();
        if reply.error_type.is_some() || matches!(outcome, AttributedOutcome::Denied(_)) {
            // The claim of the key is rolled back as well. If that fails, the database does it by itself.
            drop(write.roll_back().await);
            return Ok((with_outcome(reply, outcome), Announcement::None));
        }
        if let Some(key) = request.key {
            let result = serde_json::to_string(&reply.result).ok();
            settle_key(&*write, &KeyOutcome { holder, key, result }, &record.call_id).await?;
        }
        let mut announced = record.clone();
        announced.set_decision(Decision::Allow);
        let row = in_flight_row(announced, clock::now().saturating_add(LOST_AFTER_US))?;
        in_flight::Entity::insert(row).exec_without_returning(&*write).await?;
        if let Err(error) = write.commit().await {
            error!(%error, call_id = record.call_id, "Commit failed; the call may have had its effect.");
            return Err(CallError::InDoubt);
        }
        Ok((with_outcome(reply, outcome), Announcement::Made))
    }

    /// Records a repeated call for whom the first one was made. Only the tool knows that, and it does not run
    /// again.
    async fn attribute_as_first(
        &self,
        caller: &Caller,
        record: &mut Record,
        first: &str,
    ) -> Result<(), DbErr> {
        if !matches!(caller.agent, Agent::Orchestrator | Agent::Workflow) {
            return Ok(());
        }
        let Some(first) = row_of_call(&self.store, first).await? else { return Ok(()) };
        // Another tool: it is recorded as the call of the agent for which it was made.
        if first.tool != record.tool {
            (record.agent, record.subject, record.tool) = (first.agent, first.subject, first.tool);
        }
        (record.lease_id, record.user_id, record.project_id) =
            (first.lease_id, first.user_id, first.project_id);
        (record.task_id, record.run_id, record.job_id) = (first.task_id, first.run_id, first.job_id);
        Ok(())
    }
}

/// Records a call for whom it was made. Returns its outcome.
fn attribute(record: &mut Record, attribution: Attribution) -> AttributedOutcome {
    let Attribution { agent, tool, lease_id, user_id, project_id, task_id, run_id, job_id, outcome } =
        attribution;
    if let Some((agent, token)) = agent {
        record.agent = agent;
        record.subject = Some(token);
    }
    if let Some(tool) = tool {
        record.set_tool(&tool);
    }
    (record.lease_id, record.user_id, record.project_id) = (lease_id, user_id, project_id);
    (record.task_id, record.run_id, record.job_id) = (task_id, run_id, job_id);
    outcome
}

/// Returns a reply that is recorded with an outcome. One that failed keeps its own.
fn with_outcome(reply: ToolReply, outcome: AttributedOutcome) -> ToolReply {
    let (status, error_type) = match outcome {
        AttributedOutcome::Denied(code) => (Status::Denied, code),
        AttributedOutcome::Failed(code) => (Status::Failure, code),
        AttributedOutcome::Success => return reply,
    };
    let is_failure = reply.error_type.is_some();
    if is_failure { reply } else { ToolReply { status, error_type: Some(error_type), ..reply } }
}

fn to_reply(entry: &Entry, ran: Result<Value, ToolError>) -> Result<ToolReply, CallError> {
    match ran {
        Ok(value) if !entry.has_text => {
            let mut result = CallToolResult::success(Vec::new());
            result.structured_content = Some(value);
            Ok(ToolReply::success(result))
        }
        Ok(value) => Ok(ToolReply::success(CallToolResult::structured(value))),
        Err(ToolError::Store(error)) => Err(error.into()),
        Err(error) => {
            let mut reply = ToolReply::failure(error.code(), &error.to_string());
            reply.result.structured_content = Some(error.to_json());
            if let ToolError::Denied { .. } = error {
                reply.status = Status::Denied;
            }
            Ok(reply)
        }
    }
}

fn store_unavailable() -> ToolReply {
    ToolReply::failure("store_unavailable", "The store is temporarily unavailable; repeat the call.")
}
