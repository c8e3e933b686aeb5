use super::Error;
use crate::tokens::{self, Presented};

/// Who administers, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The id of the token, never the token.
    pub token_id: String,
    pub holder: Holder,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// May do everything.
    Admin,
    /// Looks after the servers that they installed themselves.
    User(String),
}

impl Actor {
    /// Nobody, when the token is not known, not good any more, or an agent's.
    pub fn of(presented: &Presented, now: i64) -> Option<Self> {
        let (row, holder) = presented.administrator(now)?;
        let holder = match holder {
            tokens::Holder::Admin => Holder::Admin,
            tokens::Holder::User(user) => Holder::User(user),
            tokens::Holder::Agent(_) => return None,
        };
        Some(Self { token_id: row.id.clone(), holder })
    }

    pub fn is_admin(&self) -> bool {
        self.holder == Holder::Admin
    }

    pub fn user(&self) -> Option<&str> {
        match &self.holder {
            Holder::Admin => None,
            Holder::User(user) => Some(user),
        }
    }

    /// As the audit calls them.
    pub fn kind(&self) -> &'static str {
        match self.holder {
            Holder::Admin => "admin",
            Holder::User(_) => "user",
        }
    }

    /// Who did it, for `created_by` and its like.
    pub fn author(&self) -> String {
        format!("{}:{}", self.user().unwrap_or("admin"), self.token_id)
    }

    /// For looking at what is nobody's in particular.
    pub(super) fn sees_everything(&self) -> Result<(), Error> {
        match self.holder {
            Holder::Admin => Ok(()),
            Holder::User(_) => Err(Error::Forbidden("only an administrator may see this".to_owned())),
        }
    }

    /// Users see what is theirs; what belongs to nobody in particular is the administrators'.
    pub(super) fn may_manage(&self, owner: Option<&str>) -> bool {
        match &self.holder {
            Holder::Admin => true,
            Holder::User(user) => owner == Some(user),
        }
    }
}
