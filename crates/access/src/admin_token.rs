//! The first administrator's token, which is kept in a file.
//!
//! The token in the file is valid and earlier ones are not: a start revokes the token that the file held
//! before, even if the file was deleted. A second file (`.id`) holds the id of the token, so that a start
//! knows which one to revoke. During a rotation a third file (`.next`) holds the next secret, so that after a
//! kill at any moment the next start leaves a valid token in the file.

use std::{io, path::PathBuf, time::Duration};

use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, sea_query::Expr};
use tracing::{info, warn};

use secrets::file;
use store::{
    Store, WriteTransaction, clock,
    entity::{login, token},
};

use crate::tokens::{self, Holder};

/// A shorter secret could be guessed.
const MIN_SECRET_BYTES: usize = 20;
const LABEL: &str = "first administrator";
const BY_START: &str = "start";
const BY_ROTATION: &str = "rotation by ";
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read or write the admin token file {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("the admin token file {} contains no token; delete it and restart to create one", .0.display())]
    NoToken(PathBuf),
    #[error(transparent)]
    Token(#[from] tokens::Error),
}

impl From<DbErr> for Error {
    fn from(error: DbErr) -> Self {
        Self::Token(error.into())
    }
}

/// The file, and the lifetime of tokens that are created for it.
#[derive(Clone, Debug)]
pub struct AdminToken {
    pub file: PathBuf,
    pub lifetime: Duration,
    /// The user that the first administrator is in chats.
    pub chat_user: String,
}

/// The result of a start or a rotation.
#[derive(Clone, Debug)]
pub struct Adoption {
    pub row: token::Model,
    /// Ids of the tokens that were revoked.
    pub revoked: Vec<String>,
}

impl AdminToken {
    /// Makes the token in the file valid and revokes the one that the file held before. Creates the file if
    /// it does not exist, and replaces an expired token.
    pub async fn adopt(&self, store: &Store) -> Result<Adoption, Error> {
        self.finish_rotation(store).await?;
        let (secret, made) = match self.read()? {
            Some(secret) => (secret, false),
            None => (tokens::new_secret()?, true),
        };
        let mut secret = secret;
        let now = clock::now();
        let known = find(store, &secret).await?;
        let is_expired = known.as_ref().is_some_and(|row| row.revoked_at.is_none() && row.expires_at <= now);
        if made {
            let written = if self.file.exists() { file::replace } else { file::create };
            written(&self.file, &secret).map_err(|error| self.file_error(error))?;
            info!(file = %self.file.display(), "Admin token created.");
        }
        if is_expired {
            let next = tokens::new_secret()?;
            match file::replace(&self.file, &next) {
                Ok(()) => {
                    info!(file = %self.file.display(), "Admin token had expired; the file holds a new one.");
                    secret = next;
                }
                Err(error) => warn!(
                    %error, file = %self.file.display(),
                    "Admin token has expired and its file cannot be written; put a valid token there."
                ),
            }
        }
        let known = find(store, &secret).await?;
        if let Some(row) = known.as_ref().filter(|row| row.revoked_at.is_some()) {
            warn!(
                file = %self.file.display(),
                "Admin token in the file is revoked; delete the file and restart to create a new one."
            );
            return Ok(Adoption { row: row.clone(), revoked: Vec::new() });
        }
        let write = store.write().await?;
        let row = match known {
            Some(row) => self.set_chat_user(&write, self.cap_lifetime(&write, row, now).await?).await?,
            None => tokens::insert(&write, &secret, self.new_token(BY_START)).await?,
        };
        let revoked = self.revoke_earlier(&write, &row.id, !store.is_postgres()).await?;
        write.commit().await?;
        self.write_id(&row.id);
        self.warn_if_expiring(&row, now);
        Ok(Adoption { row, revoked })
    }

    /// Stages the next secret beside the file, so that a kill cannot lose it.
    pub fn stage(&self) -> Result<String, Error> {
        let secret = tokens::new_secret()?;
        file::stage(&self.file, &secret).map_err(|error| self.file_error(error))?;
        Ok(secret)
    }

    /// Removes the staged secret of a rotation that failed.
    pub fn unstage(&self) {
        file::unstage(&self.file);
    }

    /// Makes the staged secret valid and revokes the one in the file, as part of a transaction of the caller.
    pub async fn rotate_in(
        &self,
        write: &WriteTransaction,
        staged: &str,
        by: &str,
    ) -> Result<Adoption, Error> {
        let by = format!("{BY_ROTATION}{by}");
        let row = tokens::insert(write, staged, self.new_token(&by)).await?;
        let mut revoked = self.revoke_earlier(write, &row.id, false).await?;
        if let Some(secret) = self.read()? {
            let held = token::Entity::find().filter(token::Column::Hash.eq(tokens::hash(&secret)));
            if let Some(held) = held.one(&**write).await?
                && revoke(write, &held.id).await?
            {
                revoked.push(held.id);
            }
        }
        Ok(Adoption { row, revoked })
    }

    /// Moves the staged secret into the file, after the transaction was committed.
    pub fn promote(&self, id: &str) -> Result<(), Error> {
        file::promote(&self.file).map_err(|error| self.file_error(error))?;
        self.write_id(id);
        Ok(())
    }

    /// Completes an interrupted rotation if its transaction was committed, and undoes it otherwise.
    pub async fn finish_rotation(&self, store: &Store) -> Result<(), Error> {
        let staged = file::read_staged(&self.file).map_err(|error| self.file_error(error))?;
        let Some(staged) = staged else { return Ok(()) };
        match find(store, &staged).await? {
            Some(row) => {
                info!(file = %self.file.display(), "Admin token rotation completed.");
                self.promote(&row.id)
            }
            None => {
                self.unstage();
                Ok(())
            }
        }
    }

    /// Shortens the lifetime of a token to the configured one: earlier builds issued tokens for a hundred
    /// years.
    async fn cap_lifetime(
        &self,
        write: &WriteTransaction,
        mut row: token::Model,
        now: i64,
    ) -> Result<token::Model, DbErr> {
        let latest = now.saturating_add(i64::try_from(self.lifetime.as_micros()).unwrap_or(i64::MAX));
        if row.created_by == BY_START && row.expires_at > latest {
            row.expires_at = latest;
            token::Entity::update_many()
                .col_expr(token::Column::ExpiresAt, Expr::value(latest))
                .filter(token::Column::Id.eq(&row.id))
                .exec(&**write)
                .await?;
        }
        Ok(row)
    }

    /// Makes a token that was stored before name the configured user.
    async fn set_chat_user(
        &self,
        write: &WriteTransaction,
        mut row: token::Model,
    ) -> Result<token::Model, DbErr> {
        if row.agent == Holder::Admin.kind() && row.user_id.as_deref() != Some(&self.chat_user) {
            row.user_id = Some(self.chat_user.clone());
            token::Entity::update_many()
                .col_expr(token::Column::UserId, Expr::value(&*self.chat_user))
                .filter(token::Column::Id.eq(&row.id))
                .exec(&**write)
                .await?;
        }
        Ok(row)
    }

    /// Revokes the token whose id is in the `.id` file and, with `all`, every other token that was created
    /// for a file. Pass `all` only if no other gateway uses the store. Returns the ids of the revoked tokens.
    async fn revoke_earlier(
        &self,
        write: &WriteTransaction,
        now: &str,
        all: bool,
    ) -> Result<Vec<String>, DbErr> {
        let noted = std::fs::read_to_string(self.id_file()).unwrap_or_default();
        let mut which = Condition::any().add(token::Column::Id.eq(noted.trim()));
        if all {
            which = which.add(token::Column::CreatedBy.eq(BY_START));
            which = which.add(token::Column::CreatedBy.starts_with(BY_ROTATION));
        }
        let earlier = token::Entity::find()
            .filter(which)
            .filter(token::Column::Agent.eq(Holder::Admin.kind()))
            .filter(token::Column::Id.ne(now))
            .all(&**write)
            .await?;
        let mut revoked = Vec::new();
        for row in earlier {
            if revoke(write, &row.id).await? {
                revoked.push(row.id);
            }
        }
        Ok(revoked)
    }

    fn new_token<'a>(&'a self, by: &'a str) -> tokens::NewToken<'a> {
        let new = tokens::NewToken::new(LABEL, &Holder::Admin, self.lifetime, by);
        tokens::NewToken { chat_user: Some(&self.chat_user), ..new }
    }

    /// Reads the secret; `None` if the file is missing or empty.
    fn read(&self) -> Result<Option<String>, Error> {
        match std::fs::read_to_string(&self.file) {
            // Earlier builds could be killed between making the file and writing it.
            Ok(secret) if secret.trim().is_empty() => Ok(None),
            Ok(secret) if secret.trim().len() < MIN_SECRET_BYTES => Err(Error::NoToken(self.file.clone())),
            Ok(secret) => Ok(Some(secret.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.file_error(error)),
        }
    }

    fn id_file(&self) -> PathBuf {
        file::with_suffix(&self.file, ".id")
    }

    /// Writes the `.id` file. A failure is only logged: a read-only folder means that the token is managed
    /// externally.
    fn write_id(&self, id: &str) {
        if let Err(error) = file::write(&self.id_file(), id) {
            info!(%error, file = %self.id_file().display(), "Admin token id not recorded.");
        }
    }

    fn warn_if_expiring(&self, row: &token::Model, now: i64) {
        let (file, expires) = (self.file.display(), clock::text(row.expires_at));
        let soon = now.saturating_add(i64::try_from(WARN_BEFORE.as_micros()).unwrap_or(i64::MAX));
        if row.expires_at <= soon {
            warn!(%file, expires, "Admin token expires soon; run `cynodectl tokens rotate-admin`.");
        }
    }

    fn file_error(&self, error: io::Error) -> Error {
        Error::File(self.file.clone(), error)
    }
}

async fn find(store: &Store, secret: &str) -> Result<Option<token::Model>, DbErr> {
    token::Entity::find().filter(token::Column::Hash.eq(tokens::hash(secret))).one(store.read()).await
}

/// Revokes a token and deletes its console sessions; returns whether it was valid until now.
async fn revoke(write: &WriteTransaction, id: &str) -> Result<bool, DbErr> {
    login::Entity::delete_many().filter(login::Column::TokenId.eq(id)).exec(&**write).await?;
    tokens::revoke_in(write, id).await
}
