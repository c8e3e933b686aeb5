//! `cynodectl keys`: API keys, which are the tokens of users.

use api::{NewToken, Token, TokenFilter, TokenKind};

use super::{ApiRequest, Gateway, cells, print_list, print_outcome, tokens};
use crate::{
    cli::{Keys, NewKey},
    error::{Error, Exit},
};

pub(crate) async fn run(gateway: &Gateway, command: Keys, json: bool) -> Result<Exit, Error> {
    match command {
        Keys::Create(NewKey { user, label, lives, front_end, on_disconnect, out }) => {
            let label = label.unwrap_or_else(|| user.clone());
            let new = NewToken {
                user_id: Some(user),
                is_front_end: front_end,
                on_disconnect: Some(on_disconnect),
                lives,
                ..NewToken::new(label, TokenKind::User)
            };
            tokens::issue(gateway, &new, out.as_deref(), json).await
        }
        Keys::List { user, state } => {
            let agent = Some(TokenKind::User);
            let filter = TokenFilter { state, agent, user_id: user, ..TokenFilter::default() };
            let keys: Vec<Token> = gateway.ask(ApiRequest::get(&["tokens"]).query(&filter)).await?;
            let head = ["ID", "LABEL", "USER", "FRONT END", "ON DISCONNECT", "STATE", "EXPIRES", "BY"];
            Ok(print_list(&keys, json, "no API keys", &head, |key| {
                cells!(key, id, label, user_id, is_front_end, on_disconnect, state, expires_at, created_by)
            }))
        }
        Keys::Revoke { id } => {
            let key: Token = gateway.ask(ApiRequest::delete(&["tokens", &id])).await?;
            Ok(print_outcome(json, &key, &format!("{} ({}) is revoked", key.id, key.label)))
        }
    }
}
