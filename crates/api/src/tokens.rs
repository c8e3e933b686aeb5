//! Tokens.

use std::fmt;

use policy::OnDisconnect;
use serde::{Deserialize, Serialize};

/// Who holds a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TokenFor))]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// An agent that acts for the system; not bound to a user or task.
    ProjectManager,
    /// An agent that works on one task at a time, under a lease; or bound to one user and one task.
    ProjectAnalyst,
    /// An agent that works on one task at a time, under a lease; or bound to one user and one task.
    Sandbox,
    /// Publishes handoffs, issues their leases, and keeps the threads of all users.
    Orchestrator,
    /// The machine that `node` names, which runs jobs, each under the lease of the job.
    Node,
    /// A runner of workflows: `cynode-workflow`.
    Workflow,
    /// An administrator. Cannot call tools.
    Admin,
    /// A user: the token is an API key for chat, and manages the user's own servers. Cannot call tools.
    User,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// A name to recognise the token by.
    pub label: String,
    pub agent: TokenKind,
    /// For user; for admin, the user that the administrator is in chats; and for project_analyst and sandbox
    /// to bind the token, together with `task_id`.
    #[serde(default)]
    pub user_id: Option<String>,
    /// For project_analyst and sandbox to bind the token, together with `user_id`.
    #[serde(default)]
    pub task_id: Option<String>,
    /// For node: the id of the only node that may use the token.
    #[serde(default)]
    pub node: Option<String>,
    /// The only memory profile of the agent's calls; without it, each call names its own.
    #[serde(default)]
    pub profile: Option<String>,
    /// For user: whether requests with the key may name another user in a header. For front ends that have
    /// users of their own.
    #[serde(default)]
    pub is_front_end: bool,
    /// For user: what happens to the work for a client that closes its connection. Default: it goes on.
    #[serde(default)]
    pub on_disconnect: Option<OnDisconnect>,
    /// Lifetime, for example 12h or 30days. Default: one day for tokens that are bound to a task (at most
    /// 30), 30 days for others (at most 365).
    #[serde(default)]
    pub lives: Option<String>,
}

impl NewToken {
    /// Returns a token that is bound to nothing, with the default lifetime.
    pub fn new(label: impl Into<String>, agent: TokenKind) -> Self {
        Self {
            label: label.into(),
            agent,
            user_id: None,
            task_id: None,
            node: None,
            profile: None,
            is_front_end: false,
            on_disconnect: None,
            lives: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    Active,
    Expired,
    Revoked,
}

/// A token without its secret, which is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    pub id: String,
    pub label: String,
    /// project_manager, project_analyst, sandbox, orchestrator, node, workflow, admin or user.
    pub agent: String,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    /// Of a node's token.
    pub node: Option<String>,
    pub profile: Option<String>,
    /// Of a user's token.
    pub is_front_end: Option<bool>,
    /// Of a user's token.
    pub on_disconnect: Option<OnDisconnect>,
    pub state: TokenState,
    pub created_at: String,
    pub created_by: String,
    pub expires_at: String,
    pub revoked_at: Option<String>,
}

/// A new token. The secret is returned only once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedToken {
    #[serde(flatten)]
    pub token: Token,
    pub secret: String,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("id", &self.token.id).finish_non_exhaustive()
    }
}

/// The first administrator's new token. The secret is returned only once; the gateway's file also contains
/// it.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotatedToken {
    #[serde(flatten)]
    pub token: Token,
    pub secret: String,
    /// Ids of the tokens that were revoked.
    pub revoked: Vec<String>,
    /// The file on the gateway's machine that contains the secret.
    pub file: String,
}

impl fmt::Debug for RotatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatedToken").field("id", &self.token.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct TokenFilter {
    /// Only tokens in this state.
    pub state: Option<TokenState>,
    pub agent: Option<TokenKind>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    /// Default 200, at most 1000.
    pub limit: Option<u64>,
}

/// The holder of the token that sent the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Me {
    pub token_id: String,
    /// admin or user.
    pub agent: String,
    pub user_id: Option<String>,
}
