//! `cynodectl egress`.

use api::{ProviderUsage, UsageFilter};

use super::{ApiRequest, Gateway, cells, print_list};
use crate::{
    cli::Egress,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Egress, json: bool) -> Result<Exit, Error> {
    let Egress::Usage { user, provider, limit } = command;
    let filter = UsageFilter { user_id: user, provider, limit: Some(limit) };
    let used: Vec<ProviderUsage> = gateway.ask(ApiRequest::get(&["egress", "usage"]).query(&filter)).await?;
    let head = ["DAY", "USER", "PROVIDER", "CALLS", "ESTIMATED", "OPEN", "IN", "OUT", "USD"];
    let exit = print_list(&used, json, "no calls to external providers", &head, |used| {
        cells!(
            used,
            day,
            user_id,
            provider,
            calls,
            estimated_calls,
            open_calls,
            prompt_tokens,
            completion_tokens,
            usd
        )
    });
    if used.len() as u64 >= limit {
        print::note("there may be older days: --limit, --user and --provider select");
    }
    Ok(exit)
}
