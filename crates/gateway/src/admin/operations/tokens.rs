use std::time::Duration;

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use crate::{
    admin::{Actor, Admin, Error, check},
    admin_token, clock,
    policy::{Agent, Bound},
    store::entity::{login, task, token},
    tokens::{self, Holder},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST: Duration = Duration::from_secs(1);
const LARGEST_LIST: u64 = 1000;

/// Who a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenFor {
    /// Acts for the system; bound to nobody.
    ProjectManager,
    /// Bound to one user and one task.
    ProjectAnalyst,
    /// Bound to one user and one task.
    Sandbox,
    /// Administers; calls no tools.
    Admin,
    /// Installs servers of their own; calls no tools.
    User,
}

impl TokenFor {
    /// How long a token is good when nothing is said, and at most.
    fn lives(self) -> (Duration, Duration) {
        match self {
            Self::ProjectManager | Self::Admin | Self::User => (30 * DAY, 365 * DAY),
            Self::ProjectAnalyst | Self::Sandbox => (DAY, 30 * DAY),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// By which people know it.
    pub label: String,
    pub agent: TokenFor,
    /// For project_analyst, sandbox and user.
    #[serde(default)]
    pub user_id: Option<String>,
    /// For project_analyst and sandbox.
    #[serde(default)]
    pub task_id: Option<String>,
    /// How long it is good, as 12h or 30days. When not given: one day for tokens that are bound to a task (at most 30),
    /// 30 days for others (at most 365).
    #[serde(default)]
    pub lives: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    Active,
    Expired,
    Revoked,
}

/// What is known about a token. The secret is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Token {
    pub id: String,
    pub label: String,
    /// project_manager, project_analyst, sandbox, admin or user.
    pub agent: String,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub state: TokenState,
    pub created_at: String,
    pub created_by: String,
    pub expires_at: String,
    pub revoked_at: Option<String>,
}

/// A new token. The secret is told this once.
#[derive(Clone, Serialize, ToSchema)]
pub struct IssuedToken {
    #[serde(flatten)]
    pub token: Token,
    pub secret: String,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken").field("id", &self.token.id).finish_non_exhaustive()
    }
}

/// The first administrator's new token. The secret is told this once, and is in the gateway's file.
#[derive(Clone, Serialize, ToSchema)]
pub struct RotatedToken {
    #[serde(flatten)]
    pub token: Token,
    pub secret: String,
    /// Ids of the tokens that are refused from now on.
    pub revoked: Vec<String>,
    /// The file on the gateway's machine that holds it.
    pub file: String,
}

impl std::fmt::Debug for RotatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RotatedToken").field("id", &self.token.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TokenFilter {
    /// Only tokens in this state.
    pub state: Option<TokenState>,
    pub agent: Option<TokenFor>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    /// 200 when not given, at most 1000.
    pub limit: Option<u64>,
}

impl Admin {
    pub async fn issue_token(&self, actor: &Actor, new: NewToken) -> Result<IssuedToken, Error> {
        const WHAT: &str = "admin.token.issue";
        self.admin_only(actor, WHAT).await?;
        let label = check::line("label", &new.label)?;
        let holder = holder(&new)?;
        let (default, longest) = new.agent.lives();
        let lives = match new.lives.as_deref().map(str::trim).filter(|lives| !lives.is_empty()) {
            Some(lives) => check::duration("lives", lives, SHORTEST, longest)?,
            None => default,
        };
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        if let Holder::Agent(Agent::Analyst(bound) | Agent::Sandbox(bound)) = &holder {
            let known = task::Entity::find_by_id(&bound.task).one(&*open.write).await?;
            if let Some(owner) = known.and_then(|task| task.user_id)
                && owner != bound.user
            {
                let why = format!("the task {} belongs to another user than {}", bound.task, bound.user);
                return Err(Error::invalid("task_id", why));
            }
        }
        let issued = tokens::issue_in(&open.write, &label, &holder, lives, &actor.author()).await?;
        self.commit(open).await?;
        Ok(IssuedToken { token: told(issued.row, clock::now()), secret: issued.secret })
    }

    /// Replaces the first administrator's token: the file of the gateway holds another, and the old one is refused.
    pub async fn rotate_admin_token(&self, actor: &Actor) -> Result<RotatedToken, Error> {
        const WHAT: &str = "admin.token.rotate";
        self.admin_only(actor, WHAT).await?;
        let _one_at_a_time = self.rotating.lock().await;
        let admin = self.settings.token();
        // What was cut off before must be in the file before it is read.
        admin.finish_rotation(&self.store).await.map_err(unwritable)?;
        let open = self.begin(actor, WHAT, &json!({})).await?;
        // Locked against a rotation at another gateway. Of several at once, one rotates.
        let own = token::Entity::find_by_id(&actor.token_id).lock_exclusive().one(&*open.write).await?;
        if own.is_none_or(|own| own.revoked_at.is_some()) {
            let why = "another rotation revoked this token; read the new one from the gateway's admin.token";
            return Err(Error::Conflict(why.to_owned()));
        }
        let staged = admin.stage().map_err(unwritable)?;
        let rotated = match admin.rotate_in(&open.write, &staged, &actor.author()).await {
            Ok(rotated) => rotated,
            Err(error) => {
                admin.unstage();
                return Err(unwritable(error));
            }
        };
        let committed = self.commit(open).await;
        if committed.is_err() {
            // Whether it was committed is told by the store, now or at the next start.
            admin.finish_rotation(&self.store).await.map_err(unwritable)?;
            committed?;
        }
        admin.promote(&rotated.row.id).map_err(unwritable)?;
        let token = told(rotated.row, clock::now());
        let file = admin.file.display().to_string();
        Ok(RotatedToken { token, secret: staged, revoked: rotated.revoked, file })
    }

    /// Newest first.
    pub async fn list_tokens(&self, actor: &Actor, filter: &TokenFilter) -> Result<Vec<Token>, Error> {
        actor.sees_everything()?;
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
            query = query.filter(token::Column::Agent.eq(word(agent)));
        }
        if let Some(user) = &filter.user_id {
            query = query.filter(token::Column::UserId.eq(user));
        }
        if let Some(task) = &filter.task_id {
            query = query.filter(token::Column::TaskId.eq(task));
        }
        let limit = filter.limit.unwrap_or(200).clamp(1, LARGEST_LIST);
        let rows = query.limit(limit).all(self.store.read()).await?;
        Ok(rows.into_iter().map(|row| told(row, now)).collect())
    }

    /// From the next call on it is denied, and whoever came in with it to the console is out.
    pub async fn revoke_token(&self, actor: &Actor, id: &str) -> Result<Token, Error> {
        const WHAT: &str = "admin.token.revoke";
        self.admin_only(actor, WHAT).await?;
        if id == actor.token_id {
            let why = "this is the token you are using; revoke it with another token, so that you are not locked out";
            return Err(Error::Conflict(why.to_owned()));
        }
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let revoked = tokens::revoke_in(&open.write, id).await?;
        let row = token::Entity::find_by_id(id).one(&*open.write).await?;
        let row = row.ok_or_else(|| Error::not_found("token", id))?;
        if revoked {
            login::Entity::delete_many().filter(login::Column::TokenId.eq(id)).exec(&*open.write).await?;
            self.commit(open).await?;
        }
        Ok(told(row, clock::now()))
    }
}

/// Nothing is rotated that cannot be kept.
fn unwritable(error: admin_token::Error) -> Error {
    match error {
        admin_token::Error::File(file, error) => Error::Conflict(format!(
            "the token file {} cannot be written: {error}; put another token there and restart the gateway",
            file.display()
        )),
        error @ admin_token::Error::NoToken(_) => Error::Conflict(error.to_string()),
        admin_token::Error::Token(error) => error.into(),
    }
}

fn holder(new: &NewToken) -> Result<Holder, Error> {
    let user = check::optional_id("user_id", new.user_id.as_deref())?;
    let task = check::optional_id("task_id", new.task_id.as_deref())?;
    let bound = || match (user.clone(), task.clone()) {
        (Some(user), Some(task)) => Ok(Bound { user, task }),
        (None, _) => Err(Error::invalid("user_id", "is needed: this agent always acts for one user")),
        (_, None) => Err(Error::invalid("task_id", "is needed: this agent always works on one task")),
    };
    let without = |field: &'static str, given: &Option<String>, why: &str| match given {
        Some(_) => Err(Error::invalid(field, why)),
        None => Ok(()),
    };
    match new.agent {
        TokenFor::ProjectManager => {
            let why = "a project manager acts for the system; leave it out";
            without("user_id", &user, why)?;
            without("task_id", &task, why)?;
            Ok(Holder::Agent(Agent::Manager))
        }
        TokenFor::ProjectAnalyst => Ok(Holder::Agent(Agent::Analyst(bound()?))),
        TokenFor::Sandbox => Ok(Holder::Agent(Agent::Sandbox(bound()?))),
        TokenFor::Admin => {
            let why = "an admin token is not bound to a user or task; omit it";
            without("user_id", &user, why)?;
            without("task_id", &task, why)?;
            Ok(Holder::Admin)
        }
        TokenFor::User => {
            without("task_id", &task, "a user's token is not bound to a task; leave it out")?;
            let user = user.ok_or_else(|| Error::invalid("user_id", "is needed: whose token is it?"))?;
            Ok(Holder::User(user))
        }
    }
}

fn told(row: token::Model, now: i64) -> Token {
    let state = match row.revoked_at {
        Some(_) => TokenState::Revoked,
        None if row.expires_at <= now => TokenState::Expired,
        None => TokenState::Active,
    };
    Token {
        id: row.id,
        label: row.label,
        agent: row.agent,
        user_id: row.user_id,
        task_id: row.task_id,
        state,
        created_at: clock::text(row.created_at),
        created_by: row.created_by,
        expires_at: clock::text(row.expires_at),
        revoked_at: row.revoked_at.map(clock::text),
    }
}

fn word(agent: TokenFor) -> &'static str {
    match agent {
        TokenFor::ProjectManager => "project_manager",
        TokenFor::ProjectAnalyst => "project_analyst",
        TokenFor::Sandbox => "sandbox",
        TokenFor::Admin => "admin",
        TokenFor::User => "user",
    }
}
