//! Tokens: issue, list, revoke, and rotation of the first administrator's token.

use std::time::Duration;

use api::{IssuedToken, NewToken, RotatedToken, Token, TokenFilter, TokenKind, TokenState};
use policy::{Agent, MemoryProfile, OnDisconnect, TokenBinding};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;
use subjects::{
    NodeId,
    key::{REVOKED_SUBJECT, Revoked},
    streams,
};

use access::{
    admin_token,
    tokens::{self, Holder, KeyOptions},
};
use store::{
    NewMessage, clock,
    entity::{login, task, token},
};

use crate::{Actor, Admin, Error, check};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_LIFETIME: Duration = Duration::from_secs(1);
const MAX_LIMIT: u64 = 1000;

impl Admin {
    /// Issues a token. Fails with [`Error::Invalid`] if the task belongs to another user.
    pub(crate) async fn issue_token(&self, actor: &Actor, new: NewToken) -> Result<IssuedToken, Error> {
        const WHAT: &str = "admin.token.issue";
        self.require_admin(actor, WHAT).await?;
        let label = check::line("label", &new.label)?;
        check::no_secret("label", &label)?;
        let holder = parse_holder(&new)?;
        let profile = parse_profile(&new, &holder)?;
        let key = parse_key_options(&new, &holder)?;
        let (default, max) = lifetimes(&holder);
        let lives = match new.lives.as_deref().map(str::trim).filter(|lives| !lives.is_empty()) {
            Some(lives) => check::duration("lives", lives, MIN_LIFETIME, max)?,
            None => default,
        };
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        if let Holder::Agent(Agent::Analyst(Some(bound)) | Agent::Sandbox(Some(bound))) = &holder {
            let known = task::Entity::find_by_id(&bound.task).one(&*open.write).await?;
            if let Some(owner) = known.and_then(|task| task.user_id)
                && owner != bound.user
            {
                let why = format!("the task {} belongs to a user other than {}", bound.task, bound.user);
                return Err(Error::invalid("task_id", why));
            }
        }
        let (profile, author) = (profile.as_ref(), actor.author());
        let chat_user = new.user_id.as_deref().map(str::trim).filter(|_| holder == Holder::Admin);
        let token = tokens::NewToken {
            profile,
            key,
            chat_user,
            ..tokens::NewToken::new(&label, &holder, lives, &author)
        };
        let issued = tokens::issue_in(&open.write, token).await?;
        self.commit(open).await?;
        Ok(IssuedToken { token: describe(issued.row, clock::now()), secret: issued.secret })
    }

    /// Replaces the first administrator's token: writes the new one to the gateway's file and revokes the old
    /// one.
    ///
    /// Fails with [`Error::Conflict`] if another rotation was faster or the file cannot be written.
    pub(crate) async fn rotate_admin_token(&self, actor: &Actor) -> Result<RotatedToken, Error> {
        const WHAT: &str = "admin.token.rotate";
        self.require_admin(actor, WHAT).await?;
        let _one_at_a_time = self.rotation_lock.lock().await;
        let admin = self.settings.token();
        // A rotation that was interrupted must be completed before the file is read.
        admin.finish_rotation(&self.store).await.map_err(rotation_error)?;
        let open = self.begin(actor, WHAT, &json!({})).await?;
        // The row lock serializes rotations of several gateways; only one of them succeeds.
        let own = token::Entity::find_by_id(&actor.token_id).lock_exclusive().one(&*open.write).await?;
        if own.is_none_or(|own| own.revoked_at.is_some()) {
            let why = "another rotation revoked this token; read the new one from the gateway's admin.token";
            return Err(Error::Conflict(why.to_owned()));
        }
        let staged = admin.stage().map_err(rotation_error)?;
        let rotated = match admin.rotate_in(&open.write, &staged, &actor.author()).await {
            Ok(rotated) => rotated,
            Err(error) => {
                admin.unstage();
                return Err(rotation_error(error));
            }
        };
        let committed = self.commit(open).await;
        if committed.is_err() {
            // The commit may have succeeded: the store decides, now or at the next start.
            admin.finish_rotation(&self.store).await.map_err(rotation_error)?;
            committed?;
        }
        admin.promote(&rotated.row.id).map_err(rotation_error)?;
        let token = describe(rotated.row, clock::now());
        let file = admin.file.display().to_string();
        Ok(RotatedToken { token, secret: staged, revoked: rotated.revoked, file })
    }

    /// Lists tokens, newest first.
    pub(crate) async fn list_tokens(&self, actor: &Actor, filter: &TokenFilter) -> Result<Vec<Token>, Error> {
        actor.ensure_admin()?;
        let now = clock::now();
        let mut query = token::Entity::find().order_by_desc(token::Column::CreatedAt);
        query = match filter.state {
            None => query,
            Some(TokenState::Revoked) => query.filter(token::Column::RevokedAt.is_not_null()),
            Some(TokenState::Expired) => {
                query.filter(token::Column::RevokedAt.is_null()).filter(token::Column::ExpiresAt.lte(now))
            }
            Some(TokenState::Active) => {
                query.filter(token::Column::RevokedAt.is_null()).filter(token::Column::ExpiresAt.gt(now))
            }
        };
        if let Some(agent) = filter.agent {
            query = query.filter(token::Column::Agent.eq(column(agent)));
        }
        if let Some(user) = &filter.user_id {
            query = query.filter(token::Column::UserId.eq(user));
        }
        if let Some(task) = &filter.task_id {
            query = query.filter(token::Column::TaskId.eq(task));
        }
        let limit = filter.limit.unwrap_or(200).clamp(1, MAX_LIMIT);
        let rows = query.limit(limit).all(self.store.read()).await?;
        Ok(rows.into_iter().map(|row| describe(row, now)).collect())
    }

    /// Revokes a token and ends the console sessions that were opened with it. Its next call is denied. An
    /// API key is also reported, so that orchestrators refuse it at once.
    pub(crate) async fn revoke_token(&self, actor: &Actor, id: &str) -> Result<Token, Error> {
        const WHAT: &str = "admin.token.revoke";
        self.require_admin(actor, WHAT).await?;
        if id == actor.token_id {
            let why = "this is the token you are using; revoke it with another token, so that you are not \
                       locked out";
            return Err(Error::Conflict(why.to_owned()));
        }
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let revoked = tokens::revoke_in(&open.write, id).await?;
        let row = token::Entity::find_by_id(id).one(&*open.write).await?;
        let row = row.ok_or_else(|| Error::not_found("token", id))?;
        if revoked {
            login::Entity::delete_many().filter(login::Column::TokenId.eq(id)).exec(&*open.write).await?;
            if let Some(Holder::User(user)) = Holder::from_row(&row) {
                let message = report(&row, user, &actor.author());
                self.leases.outbox.add(&*open.write, message).await?;
            }
            self.commit(open).await?;
        }
        Ok(describe(row, clock::now()))
    }
}

/// Returns the value of the `agent` column.
fn column(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::ProjectManager => "project_manager",
        TokenKind::ProjectAnalyst => "project_analyst",
        TokenKind::Sandbox => "sandbox",
        TokenKind::Orchestrator => "orchestrator",
        TokenKind::Node => "node",
        TokenKind::Workflow => "workflow",
        TokenKind::Admin => "admin",
        TokenKind::User => "user",
    }
}

/// Returns the default and the maximum lifetime.
fn lifetimes(holder: &Holder) -> (Duration, Duration) {
    match holder {
        Holder::Agent(agent) if agent.binding().is_some() => (DAY, 30 * DAY),
        Holder::Agent(_) | Holder::Admin | Holder::User(_) => (30 * DAY, 365 * DAY),
    }
}

/// Converts an error of the token file: a secret that cannot be written must not be activated.
fn rotation_error(error: admin_token::Error) -> Error {
    match error {
        admin_token::Error::File(file, error) => Error::Conflict(format!(
            "the token file {} cannot be written: {error}; put another token there and restart the gateway",
            file.display()
        )),
        error @ admin_token::Error::NoToken(_) => Error::Conflict(error.to_string()),
        admin_token::Error::Token(error) => error.into(),
    }
}

/// Returns the message that an API key was revoked.
fn report(row: &token::Model, user_id: String, by: &str) -> NewMessage {
    let revoked = Revoked {
        key_id: row.id.clone(),
        user_id,
        revoked_at: clock::text(row.revoked_at.unwrap_or_else(clock::now)),
        revoked_by: by.to_owned(),
    };
    let (subject, body) = (REVOKED_SUBJECT.to_owned(), subjects::encode_json_text(&revoked));
    NewMessage::new(streams::EVENTS, subject, revoked.message_id(), body)
}

/// Checks that only an API key has its options.
fn parse_key_options(new: &NewToken, holder: &Holder) -> Result<KeyOptions, Error> {
    let is_key = matches!(holder, Holder::User(_));
    let why = "only an API key, which is a user's token, has this option; omit it";
    if new.is_front_end && !is_key {
        return Err(Error::invalid("is_front_end", why));
    }
    if new.on_disconnect.is_some() && !is_key {
        return Err(Error::invalid("on_disconnect", why));
    }
    let on_disconnect = new.on_disconnect.unwrap_or(OnDisconnect::Continue);
    Ok(KeyOptions { is_front_end: new.is_front_end, on_disconnect })
}

/// Parses the memory profile of an agent's token.
fn parse_profile(new: &NewToken, holder: &Holder) -> Result<Option<MemoryProfile>, Error> {
    let Some(name) = check::narrowing("profile", new.profile.as_deref())? else { return Ok(None) };
    if !matches!(holder, Holder::Agent(_)) {
        return Err(Error::invalid("profile", "only agents call tools under a memory profile; omit it"));
    }
    name.parse()
        .map(Some)
        .map_err(|error: policy::InvalidProfile| Error::invalid("profile", error.to_string()))
}

/// Checks which ids this kind of token needs, and returns its holder.
fn parse_holder(new: &NewToken) -> Result<Holder, Error> {
    let user = check::optional_id("user_id", new.user_id.as_deref())?;
    check::no_secret("user_id", user.as_deref().unwrap_or_default())?;
    let task = check::optional_id("task_id", new.task_id.as_deref())?;
    // Without user and task the token is of use only with a lease.
    let bound = || match (user.clone(), task.clone()) {
        (Some(user), Some(task)) => Ok(Some(TokenBinding { user, task })),
        (None, None) => Ok(None),
        (None, _) => Err(Error::invalid("user_id", "is required with a task: name both, or neither")),
        (_, None) => Err(Error::invalid("task_id", "is required with a user: name both, or neither")),
    };
    let forbid = |field: &'static str, given: &Option<String>, why: &str| match given {
        Some(_) => Err(Error::invalid(field, why)),
        None => Ok(()),
    };
    if new.agent != TokenKind::Node {
        forbid("node", &new.node, "only the token of a node names one; omit it")?;
    }
    match new.agent {
        TokenKind::ProjectManager => {
            let why = "a project manager acts for the system; omit it";
            forbid("user_id", &user, why)?;
            forbid("task_id", &task, why)?;
            Ok(Holder::Agent(Agent::Manager))
        }
        TokenKind::ProjectAnalyst => Ok(Holder::Agent(Agent::Analyst(bound()?))),
        TokenKind::Sandbox => Ok(Holder::Agent(Agent::Sandbox(bound()?))),
        TokenKind::Orchestrator => {
            let why = "an orchestrator issues leases for any user; omit it";
            forbid("user_id", &user, why)?;
            forbid("task_id", &task, why)?;
            Ok(Holder::Agent(Agent::Orchestrator))
        }
        TokenKind::Node => {
            let why = "a node acts under the leases of its jobs; omit it";
            forbid("user_id", &user, why)?;
            forbid("task_id", &task, why)?;
            Ok(Holder::Agent(Agent::Node(parse_node(new.node.as_deref())?)))
        }
        TokenKind::Workflow => {
            let why = "a runner acts for the user and task of each workflow that it holds; omit it";
            forbid("user_id", &user, why)?;
            forbid("task_id", &task, why)?;
            Ok(Holder::Agent(Agent::Workflow))
        }
        TokenKind::Admin => {
            // Who the administrator is in chats.
            check::scope_id("user_id", user.as_deref())?;
            forbid("task_id", &task, "an admin token is not bound to a task; omit it")?;
            Ok(Holder::Admin)
        }
        TokenKind::User => {
            forbid("task_id", &task, "a user token is not bound to a task; omit it")?;
            let user = user.ok_or_else(|| Error::invalid("user_id", "is required for a user token"))?;
            // It is the user of handoffs and leases.
            check::scope_id("user_id", Some(&user))?;
            Ok(Holder::User(user))
        }
    }
}

/// Returns the id of the node that a token is for. Each node has a token of its own: what one node does is
/// not mistaken for what another did, and one can be locked out alone.
fn parse_node(node: Option<&str>) -> Result<String, Error> {
    let node = check::narrowing("node", node)?;
    let node =
        node.ok_or_else(|| Error::invalid("node", "is required for the token of a node: its node.id"))?;
    let parsed = node.parse::<NodeId>().map_err(|error| Error::invalid("node", error.to_string()))?;
    if parsed.as_str() == NodeId::GATEWAY {
        return Err(Error::invalid("node", "is reserved for the gateway; no node has this id"));
    }
    Ok(parsed.to_string())
}

/// `now` decides whether the token has expired, in microseconds since 1970.
fn describe(row: token::Model, now: i64) -> Token {
    let state = match row.revoked_at {
        Some(_) => TokenState::Revoked,
        None if row.expires_at <= now => TokenState::Expired,
        None => TokenState::Active,
    };
    let is_key = row.agent == column(TokenKind::User);
    Token {
        is_front_end: is_key.then_some(row.is_front_end),
        on_disconnect: row.on_disconnect.parse().ok().filter(|_| is_key),
        id: row.id,
        label: row.label,
        agent: row.agent,
        user_id: row.user_id,
        task_id: row.task_id,
        node: row.node,
        profile: row.profile,
        state,
        created_at: clock::text(row.created_at),
        created_by: row.created_by,
        expires_at: clock::text(row.expires_at),
        revoked_at: row.revoked_at.map(clock::text),
    }
}
