//! The first administrator's token, which is kept in a file.
//!
//! What the file says is good, and what it said before is not: a start revokes the token that the file held before, also
//! when the file was deleted. Beside it stands its token's id (`.id`), by which that is known, and during a rotation the
//! next secret (`.next`): whenever the gateway is killed, the file holds a good token after the next start.

use std::{io, path::PathBuf, time::Duration};

use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, sea_query::Expr};
use tracing::{info, warn};

use crate::{
    clock, secret_file,
    store::{
        Store, Write,
        entity::{login, token},
    },
    tokens::{self, Holder},
};

/// Anything shorter can be guessed.
const SHORTEST_SECRET: usize = 20;
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

/// The file, and how long a token that is made for it is good.
#[derive(Clone, Debug)]
pub struct AdminToken {
    pub file: PathBuf,
    pub lives: Duration,
}

/// What a start or a rotation did.
#[derive(Clone, Debug)]
pub struct Adopted {
    pub row: token::Model,
    /// Ids of tokens that are refused from now on.
    pub revoked: Vec<String>,
}

impl AdminToken {
    /// Makes the token of the file good and revokes what the file held before. Makes a file where there is none, and a new
    /// token where the old one has expired.
    pub async fn adopt(&self, store: &Store) -> Result<Adopted, Error> {
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
            let written = if self.file.exists() { secret_file::replace } else { secret_file::create };
            written(&self.file, &secret).map_err(|error| self.wrong(error))?;
            info!(file = %self.file.display(), "Admin token created.");
        }
        if is_expired {
            let next = tokens::new_secret()?;
            match secret_file::replace(&self.file, &next) {
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
            warn!(file = %self.file.display(), "Admin token in the file is revoked; delete the file and restart to create a new one.");
            return Ok(Adopted { row: row.clone(), revoked: Vec::new() });
        }
        let write = store.write().await?;
        let row = match known {
            Some(row) => self.capped(&write, row, now).await?,
            None => tokens::insert(&write, &secret, LABEL, &Holder::Admin, self.lives, BY_START).await?,
        };
        let revoked = self.revoke_earlier(&write, &row.id, !store.is_postgres()).await?;
        write.commit().await?;
        self.note(&row.id);
        self.say_how_long(&row, now);
        Ok(Adopted { row, revoked })
    }

    /// Stages the next secret beside the file, so that a kill cannot lose it.
    pub fn stage(&self) -> Result<String, Error> {
        let secret = tokens::new_secret()?;
        secret_file::stage(&self.file, &secret).map_err(|error| self.wrong(error))?;
        Ok(secret)
    }

    /// Nothing came of a rotation.
    pub fn unstage(&self) {
        secret_file::unstage(&self.file);
    }

    /// Makes the staged secret good and revokes the one in the file, as part of a transaction.
    pub async fn rotate_in(&self, write: &Write, staged: &str, by: &str) -> Result<Adopted, Error> {
        let by = format!("{BY_ROTATION}{by}");
        let row = tokens::insert(write, staged, LABEL, &Holder::Admin, self.lives, &by).await?;
        let mut revoked = self.revoke_earlier(write, &row.id, false).await?;
        if let Some(secret) = self.read()? {
            let held = token::Entity::find().filter(token::Column::Hash.eq(tokens::hash(&secret)));
            if let Some(held) = held.one(&**write).await?
                && revoke(write, &held.id).await?
            {
                revoked.push(held.id);
            }
        }
        Ok(Adopted { row, revoked })
    }

    /// The transaction is committed: the staged secret becomes the file.
    pub fn promote(&self, id: &str) -> Result<(), Error> {
        secret_file::promote(&self.file).map_err(|error| self.wrong(error))?;
        self.note(id);
        Ok(())
    }

    /// A rotation that was cut off is finished if it was committed, and undone if not.
    pub async fn finish_rotation(&self, store: &Store) -> Result<(), Error> {
        let staged = secret_file::staged(&self.file).map_err(|error| self.wrong(error))?;
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

    /// Earlier builds made tokens that were good for a hundred years.
    async fn capped(&self, write: &Write, mut row: token::Model, now: i64) -> Result<token::Model, DbErr> {
        let latest = now.saturating_add(i64::try_from(self.lives.as_micros()).unwrap_or(i64::MAX));
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

    /// The token whose id is noted, and where the store is nobody else's, all that were made for the file.
    async fn revoke_earlier(&self, write: &Write, now: &str, all: bool) -> Result<Vec<String>, DbErr> {
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

    fn read(&self) -> Result<Option<String>, Error> {
        match std::fs::read_to_string(&self.file) {
            // Earlier builds could be killed between making the file and writing it.
            Ok(secret) if secret.trim().is_empty() => Ok(None),
            Ok(secret) if secret.trim().len() < SHORTEST_SECRET => Err(Error::NoToken(self.file.clone())),
            Ok(secret) => Ok(Some(secret.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.wrong(error)),
        }
    }

    fn id_file(&self) -> PathBuf {
        secret_file::beside(&self.file, ".id")
    }

    /// A folder that cannot be written holds a token that is managed elsewhere.
    fn note(&self, id: &str) {
        if let Err(error) = secret_file::write(&self.id_file(), id) {
            info!(%error, file = %self.id_file().display(), "Admin token id not recorded.");
        }
    }

    fn say_how_long(&self, row: &token::Model, now: i64) {
        let (file, expires) = (self.file.display(), clock::text(row.expires_at));
        let soon = now.saturating_add(i64::try_from(WARN_BEFORE.as_micros()).unwrap_or(i64::MAX));
        if row.expires_at <= soon {
            warn!(%file, expires, "Admin token expires soon; run `cynodectl tokens rotate-admin`.");
        }
    }

    fn wrong(&self, error: io::Error) -> Error {
        Error::File(self.file.clone(), error)
    }
}

async fn find(store: &Store, secret: &str) -> Result<Option<token::Model>, DbErr> {
    token::Entity::find().filter(token::Column::Hash.eq(tokens::hash(secret))).one(store.read()).await
}

/// Whether it was good until now. Console sessions go with it.
async fn revoke(write: &Write, id: &str) -> Result<bool, DbErr> {
    login::Entity::delete_many().filter(login::Column::TokenId.eq(id)).exec(&**write).await?;
    tokens::revoke_in(write, id).await
}
