//! What users used of external providers.

use api::{ProviderUsage, UsageFilter};
use contract::egress::DayUsage;

use crate::{Actor, Admin, Error};

const MAX_LIMIT: u64 = 1000;

impl Admin {
    /// Lists what was used, the last day first.
    pub(crate) async fn list_usage(
        &self,
        actor: &Actor,
        filter: &UsageFilter,
    ) -> Result<Vec<ProviderUsage>, Error> {
        actor.ensure_admin()?;
        let limit = filter.limit.unwrap_or(200).clamp(1, MAX_LIMIT);
        let (user, provider) = (filter.user_id.as_deref(), filter.provider.as_deref());
        let found = control::list_usage(self.store.read(), user, provider, 0, limit).await?;
        Ok(found.into_iter().map(describe).collect())
    }
}

fn describe(used: DayUsage) -> ProviderUsage {
    let DayUsage { day, user_id, provider, calls, estimated_calls, prompt_tokens, .. } = used;
    let DayUsage { completion_tokens, usd, open_calls, .. } = used;
    ProviderUsage {
        day,
        user_id,
        provider,
        calls,
        estimated_calls,
        prompt_tokens,
        completion_tokens,
        usd,
        open_calls,
    }
}
