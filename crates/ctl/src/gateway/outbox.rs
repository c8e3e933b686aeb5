//! `cynodectl outbox`.

use api::WaitingMessages;

use super::{ApiRequest, Gateway, cells, print_list};
use crate::error::{Error, Exit};

pub(crate) async fn run(gateway: &Gateway, json: bool) -> Result<Exit, Error> {
    let waiting: Vec<WaitingMessages> = gateway.ask(ApiRequest::get(&["outbox"])).await?;
    let head = ["SUBJECT", "MESSAGES", "OLDEST"];
    Ok(print_list(&waiting, json, "no messages wait to be published", &head, |subject| {
        cells!(subject, subject, messages, oldest_at)
    }))
}
