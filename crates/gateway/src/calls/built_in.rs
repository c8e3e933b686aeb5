//! Runs built-in tools. A tool that writes runs in one transaction with its announcement and its key.

use rmcp::model::CallToolResult;
use sea_orm::{DatabaseExecutor, EntityTrait};
use serde_json::Value;
use tracing::error;

use super::{CallError, Calls, Outcome, Request, SideEffect, ToolReply, keys};
use policy::{Permitted, Standing};

use audit::{
    Announcement, ClaimOutcome, Decision, KeyClaim, KeyOutcome, Record, Unavailable, claim_key,
    in_flight_row, settle_key,
};
use control::{Context, Does, Entry, ToolError};
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
        let (reply, announcement) = match entry.does {
            Does::Read => (self.read(entry, permitted, record, request).await?, Announcement::None),
            Does::Write => self.write(entry, permitted, record, request).await?,
        };
        let reply = self.limit_size(reply);
        let side_effect = match &announcement {
            Announcement::None => SideEffect::None,
            Announcement::Made | Announcement::WithKey(_) => SideEffect::Possible,
        };
        Ok(self.finish(record, reply, announcement, side_effect).await)
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
    ) -> Context<'a> {
        let (caller, leases) = (permitted.caller(), &*self.leases);
        let trace_id = record.trace_id.as_deref().unwrap_or_default();
        Context { db, visible_tools, caller, leases, trace_id, now: clock::now() }
    }

    async fn read(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &Record,
        request: Request,
    ) -> Result<ToolReply, CallError> {
        let db = DatabaseExecutor::from(self.store.read());
        let visible_tools = self.caller_tools(permitted);
        let context = self.context(db, permitted, &visible_tools, record);
        to_reply(entry.run(&context, request.arguments).await)
    }

    /// Runs a tool that writes. Its effect, the answer under its key and its announcement are one
    /// transaction.
    async fn write(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &Record,
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
                // A key of a built-in tool is committed together with its answer, so an existing one has an
                // answer.
                let reply = keys::recorded_reply(&known, &request, &digest);
                return Ok((reply.unwrap_or_else(keys::in_doubt), Announcement::None));
            }
        }
        let arguments = std::mem::take(&mut request.arguments);
        let visible_tools = self.caller_tools(permitted);
        let db = DatabaseExecutor::from(&*write);
        let context = self.context(db, permitted, &visible_tools, record);
        let reply = to_reply(entry.run(&context, arguments).await)?;
        drop(context);
        if reply.error_type.is_some() {
            // Returning without a commit rolls the transaction back, including the claim of the key.
            return Ok((reply, Announcement::None));
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
        Ok((reply, Announcement::Made))
    }
}

fn to_reply(ran: Result<Value, ToolError>) -> Result<ToolReply, CallError> {
    match ran {
        Ok(value) => Ok(ToolReply::success(CallToolResult::structured(value))),
        Err(ToolError::Store(error)) => Err(error.into()),
        Err(error) => Ok(ToolReply::failure(error.code(), &error.to_string())),
    }
}
