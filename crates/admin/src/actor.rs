//! The administrator or user behind a request, and what they may see and manage.

use super::Error;
use access::tokens::{self, PresentedToken};

/// The authenticated holder of an administration token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The id of the token, never its secret.
    pub(crate) token_id: String,
    pub(crate) holder: Holder,
    /// The user that the holder is in chats. Of an administrator, the one that the token names.
    pub(crate) chat_user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// May do everything.
    Admin,
    /// Manages only the servers that this user installed.
    User(String),
}

impl Actor {
    /// Returns `None` if the token is unknown, expired, revoked, or an agent token.
    pub(crate) fn of(presented: &PresentedToken, now: i64) -> Option<Self> {
        let (row, holder) = presented.administrator(now)?;
        let holder = match holder {
            tokens::Holder::Admin => Holder::Admin,
            tokens::Holder::User(user) => Holder::User(user),
            tokens::Holder::Agent(_) => return None,
        };
        Some(Self { token_id: row.id.clone(), holder, chat_user: row.user_id.clone() })
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.holder == Holder::Admin
    }

    pub(crate) fn user(&self) -> Option<&str> {
        match &self.holder {
            Holder::Admin => None,
            Holder::User(user) => Some(user),
        }
    }

    /// Returns the name of this kind of actor in audit rows.
    pub(crate) fn kind(&self) -> &'static str {
        match self.holder {
            Holder::Admin => "admin",
            Holder::User(_) => "user",
        }
    }

    /// Returns the author for columns such as `created_by`: user (or `admin`) and token id.
    pub(crate) fn author(&self) -> String {
        format!("{}:{}", self.user().unwrap_or("admin"), self.token_id)
    }

    /// Fails with [`Error::Forbidden`] unless the actor is an administrator. Writes no audit row; changes use
    /// `Admin::require_admin`, which does.
    pub(super) fn ensure_admin(&self) -> Result<(), Error> {
        match self.holder {
            Holder::Admin => Ok(()),
            Holder::User(_) => Err(Error::Forbidden("only an administrator may see this".to_owned())),
        }
    }

    /// Returns whether the actor may manage what `owner` owns. Only administrators manage what has no owner.
    pub(super) fn may_manage(&self, owner: Option<&str>) -> bool {
        match &self.holder {
            Holder::Admin => true,
            Holder::User(user) => owner == Some(user),
        }
    }
}
