//! `egress.usage`: what users used of providers.

use contract::{
    Page,
    egress::{DayUsage, MAX_PROVIDER_BYTES, Usage},
};
use policy::Scope;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use std::collections::BTreeMap;
use store::entity::{egress_call, egress_usage};

use crate::{BuiltInTool, Context, Does, ToolError, arguments::check, queries::page::PageRequest};

impl BuiltInTool for Usage {
    const TITLE: &'static str = "List what providers were used for";
    const DESCRIPTION: &'static str =
        "Lists what users used of external providers, by day, the last day first: calls, tokens and cost.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<DayUsage>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        if let Some(provider) = &input.provider {
            check::text("provider", provider, MAX_PROVIDER_BYTES)?;
        }
        let user = input.user_id.as_ref().map(|user| user.as_str());
        let (offset, limit) = (request.offset, request.fetch_limit());
        let found = list_usage(&context.db, user, input.provider.as_deref(), offset, limit).await?;
        Ok(request.build_page(found))
    }
}

/// Lists what was used, the last day first, by user and provider.
pub async fn list_usage(
    db: &impl ConnectionTrait,
    user: Option<&str>,
    provider: Option<&str>,
    offset: u64,
    limit: u64,
) -> Result<Vec<DayUsage>, DbErr> {
    let used = egress_usage::Entity::find()
        .filter(
            Condition::all()
                .add_option(user.map(|user| egress_usage::Column::UserId.eq(user)))
                .add_option(provider.map(|provider| egress_usage::Column::Provider.eq(provider))),
        )
        .order_by_desc(egress_usage::Column::Day)
        .order_by_asc(egress_usage::Column::UserId)
        .order_by_asc(egress_usage::Column::Provider)
        .offset(offset)
        .limit(limit);
    let open = egress_call::Entity::find()
        .filter(
            Condition::all()
                .add(egress_call::Column::Outcome.is_null())
                .add_option(user.map(|user| egress_call::Column::UserId.eq(user))),
        )
        .select_only()
        .column(egress_call::Column::UserId)
        .column(egress_call::Column::Provider)
        .column(egress_call::Column::Day)
        .column_as(egress_call::Column::Id.count(), "calls")
        .group_by(egress_call::Column::UserId)
        .group_by(egress_call::Column::Provider)
        .group_by(egress_call::Column::Day);
    let open: Vec<(String, String, String, i64)> = open.into_tuple().all(db).await?;
    let open: BTreeMap<(String, String, String), i64> =
        open.into_iter().map(|(user, provider, day, calls)| ((user, provider, day), calls)).collect();
    let describe = |row: egress_usage::Model| {
        let open_calls = open.get(&(row.user_id.clone(), row.provider.clone(), row.day.clone()));
        DayUsage {
            open_calls: open_calls.copied().unwrap_or_default(),
            day: row.day,
            user_id: row.user_id,
            provider: row.provider,
            calls: row.calls,
            estimated_calls: row.estimated_calls,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            usd: row.micro_usd as f64 / 1e6,
        }
    };
    Ok(used.all(db).await?.into_iter().map(describe).collect())
}
