//! Chats of the console with the project manager, through an orchestrator.

use std::time::Duration;

use access::tokens::{self, Holder};
use contract::key::BY_CONSOLE;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Value, json};
use store::{clock, entity::token};
use subjects::HandoffId;

use crate::{
    Actor, Admin, Error,
    chat_keys::ChatKey,
    orchestrator::{Answering, ChatFailure, Message, Orchestrator},
};

const KEY_LIFETIME: Duration = Duration::from_secs(15 * 60);
const KEY_LABEL: &str = "chat in the console";

impl Admin {
    /// Sends a message of the actor. The inner result tells what the orchestrator made of it; the audit row
    /// is written once that is known.
    pub(crate) async fn send_message(
        &self,
        actor: &Actor,
        message: Message<'_>,
    ) -> Result<Result<Answering, ChatFailure>, Error> {
        let (orchestrator, user) = match self.chat_setup(actor) {
            Ok(partners) => partners,
            Err(failure) => return Ok(Err(failure)),
        };
        let key = self.chat_key(actor, user).await?;
        let about = json!({ "user_id": user, "thread": message.thread, "request": message.request_key });
        self.ask_orchestrator(actor, "admin.chat.send", &about, orchestrator.send(&key, message)).await
    }

    /// Stops the work on a turn of the actor. Another user's is not found.
    pub(crate) async fn stop_turn(
        &self,
        actor: &Actor,
        turn: HandoffId,
    ) -> Result<Result<(), ChatFailure>, Error> {
        let (orchestrator, user) = match self.chat_setup(actor) {
            Ok(partners) => partners,
            Err(failure) => return Ok(Err(failure)),
        };
        let key = self.chat_key(actor, user).await?;
        let about = json!({ "user_id": user, "turn": turn.to_string() });
        self.ask_orchestrator(actor, "admin.chat.stop", &about, orchestrator.stop(&key, turn)).await
    }

    /// Returns why the actor cannot chat, if it is known beforehand.
    pub(crate) fn chat_obstacle(&self, actor: &Actor) -> Option<ChatFailure> {
        self.chat_setup(actor).err()
    }

    /// Runs a request to the orchestrator. A failed one is recorded as such.
    async fn ask_orchestrator<T>(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
        request: impl Future<Output = Result<T, ChatFailure>>,
    ) -> Result<Result<T, ChatFailure>, Error> {
        let mut failure = None;
        let asking = async {
            request.await.map_err(|why| {
                failure = Some(why);
                Error::Unreachable("the orchestrator did not accept it".to_owned())
            })
        };
        match (self.run_external(actor, what, about, asking).await, failure) {
            (Err(Error::Unreachable(_)), Some(failure)) => Ok(Err(failure)),
            (result, _) => result.map(Ok),
        }
    }

    /// Returns the secret of an API key with which the actor chats as `user`. Issues one, with an audit row,
    /// if there is none, and deletes those that have expired.
    async fn chat_key(&self, actor: &Actor, user: &str) -> Result<String, Error> {
        let now = clock::now();
        if let Some(key) = self.chat_keys.unexpired(actor, user, now) {
            let row = token::Entity::find_by_id(&key.id).one(self.store.read()).await?;
            if row.is_some_and(|row| row.revoked_at.is_none()) {
                return Ok(key.secret);
            }
        }
        let open = self.begin(actor, "admin.chat.key", &json!({ "user_id": user })).await?;
        token::Entity::delete_many()
            .filter(token::Column::CreatedBy.starts_with(BY_CONSOLE))
            .filter(token::Column::ExpiresAt.lte(now))
            .exec(&*open.write)
            .await?;
        let (holder, by) = (Holder::User(user.to_owned()), format!("{BY_CONSOLE}{}", actor.token_id));
        let new = tokens::NewToken::new(KEY_LABEL, &holder, KEY_LIFETIME, &by);
        let issued = tokens::issue_in(&open.write, new).await?;
        self.commit(open).await?;
        let (secret, id, expires_at) = (issued.secret, issued.row.id, issued.row.expires_at);
        self.chat_keys.put(actor, ChatKey { id, user: user.to_owned(), secret: secret.clone(), expires_at });
        Ok(secret)
    }

    /// Returns the orchestrator, and the user as whom the actor chats.
    fn chat_setup<'a>(&'a self, actor: &'a Actor) -> Result<(&'a Orchestrator, &'a str), ChatFailure> {
        let user = actor.chat_user.as_deref().ok_or(ChatFailure::NoUser)?;
        let orchestrator = self.orchestrator.as_ref().ok_or(ChatFailure::NotConfigured)?;
        Ok((orchestrator, user))
    }
}
