use rmcp::model::CallToolResult;
use sea_orm::{DatabaseExecutor, EntityTrait};
use serde_json::Value;
use tracing::error;

use super::{Calls, Ended, Outcome, Reached, Request, Stop, once};
use crate::{
    audit::{Begun, Claim, Decision, Finish, Record, Unavailable, WasBegun, claim, intent, settle},
    catalogue::SeenBy,
    clock,
    policy::{Permitted, Standing},
    store::entity::in_flight,
    tools::{Context, Does, Entry, ToolError},
};

/// How long a call of ours may be without its row before another instance takes it for lost.
const LOST_AFTER_US: i64 = 60_000_000;

impl Calls {
    pub(super) async fn run_own(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &mut Record,
        request: Request,
    ) -> Result<Outcome, Stop> {
        let (ended, begun) = match entry.does {
            Does::Read => (self.read(entry, permitted, request).await?, WasBegun::Not),
            Does::Write => self.write(entry, permitted, record, request).await?,
        };
        let ended = self.within_limits(ended);
        let reached = match &begun {
            WasBegun::Not => Reached::Nothing,
            WasBegun::Yes | WasBegun::WithKey(_) => Reached::Tool,
        };
        Ok(self.finish(record, ended, begun, reached).await)
    }

    fn seen_by(&self, permitted: &Permitted) -> SeenBy {
        SeenBy { catalogue: self.shelf.last(), standing: Standing::Valid(permitted.caller().clone()) }
    }

    async fn read(&self, entry: &Entry, permitted: &Permitted, request: Request) -> Result<Ended, Stop> {
        let db = DatabaseExecutor::from(self.store.read());
        let shelf = self.seen_by(permitted);
        let context = Context { db, shelf: &shelf, caller: permitted.caller(), now: clock::now() };
        answer(entry.run(&context, request.arguments).await)
    }

    /// The effect, the answer to its key, and the word that it happened are one transaction.
    async fn write(
        &self,
        entry: &Entry,
        permitted: &Permitted,
        record: &Record,
        mut request: Request,
    ) -> Result<(Ended, WasBegun), Stop> {
        let digest = record.arguments_digest.clone().unwrap_or_default();
        let holder = once::holder(permitted.caller());
        let refused = |Unavailable| Stop::Unavailable { why: "audit_unavailable", begun: WasBegun::Not };
        self.ledger.accepts().map_err(refused)?;
        let write = self.store.write().await?;
        if let Some(key) = &request.key {
            let kept = i64::try_from(self.limits.keep_keys.as_micros()).unwrap_or(i64::MAX);
            let wish = Claim {
                holder: holder.clone(),
                key: key.clone(),
                tool: request.tool.clone(),
                arguments_digest: digest.clone(),
                expires_at: clock::now().saturating_add(kept),
            };
            if let Begun::Known(known) = claim(&*write, &wish, &record.call_id).await? {
                // Ours are never left half done: a record that is there is done.
                let ended = once::recorded(&known, &request, &digest);
                return Ok((ended.unwrap_or_else(once::in_doubt), WasBegun::Not));
            }
        }
        let arguments = std::mem::take(&mut request.arguments);
        let shelf = self.seen_by(permitted);
        let db = DatabaseExecutor::from(&*write);
        let context = Context { db, shelf: &shelf, caller: permitted.caller(), now: clock::now() };
        let ended = answer(entry.run(&context, arguments).await)?;
        drop(context);
        if ended.error_type.is_some() {
            // Dropped without a commit, the transaction is undone, and with it the claim on the key.
            return Ok((ended, WasBegun::Not));
        }
        if let Some(key) = request.key {
            let result = serde_json::to_string(&ended.result).ok();
            settle(&*write, &Finish { holder, key, result }, &record.call_id).await?;
        }
        let mut begun = record.clone();
        begun.decision = Decision::Allow;
        let row = intent(begun, clock::now().saturating_add(LOST_AFTER_US))?;
        in_flight::Entity::insert(row).exec_without_returning(&*write).await?;
        if let Err(error) = write.commit().await {
            error!(%error, call_id = record.call_id, "Commit failed; the call may have had its effect.");
            return Err(Stop::InDoubt);
        }
        Ok((ended, WasBegun::Yes))
    }
}

fn answer(ran: Result<Value, ToolError>) -> Result<Ended, Stop> {
    match ran {
        Ok(value) => Ok(Ended::well(CallToolResult::structured(value))),
        Err(ToolError::Store(error)) => Err(error.into()),
        Err(error) => Ok(Ended::badly(error.code(), &error.to_string())),
    }
}
