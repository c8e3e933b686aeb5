//! The store: SQLite in a file, or PostgreSQL by its URL. One code path for both.

pub mod entity;
mod migration;

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr,
    RuntimeErr, SqliteTransactionMode, TransactionOptions, TransactionTrait,
    sqlx::{
        self, Connection,
        postgres::PgConnectOptions,
        sqlite::{SqliteConnectOptions, SqliteJournalMode},
    },
};
use sea_orm_migration::MigratorTrait;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tracing::warn;

/// Readers do not wait for the writer. A handful is enough: a query takes microseconds.
const SQLITE_CONNECTIONS: u32 = 4;
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST_IDLE: Duration = Duration::from_millis(500);
/// How long a gateway waits at its start for another one that migrates.
const MIGRATE_WITHIN: Duration = Duration::from_secs(120);
/// The advisory lock for migrations, within one database. It must never change.
const MIGRATION_LOCK: i64 = 0x6379_6e6f_6465_0002;

#[derive(Clone, Debug)]
pub struct Options {
    pub url: String,
    pub max_connections: u32,
    /// How long anyone waits for the store before the call is denied.
    pub patience: Duration,
    pub durability: Durability,
}

/// What a commit of SQLite survives. PostgreSQL has this in its own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The end of this process at any instant. A loss of power may take the last moments with it.
    #[default]
    Process,
    /// Also a loss of power, at the price of waiting for the disk with every commit.
    Power,
}

impl Durability {
    /// What SQLite calls it.
    pub(crate) fn pragma(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid store.url {}; expected sqlite://<path> or postgres://…", .0)]
    Address(String),
    #[error("cannot create the store folder {}", .0.display())]
    Folder(PathBuf, #[source] std::io::Error),
    #[error("cannot open the store at {url}")]
    Open {
        url: String,
        #[source]
        source: DbErr,
    },
    #[error("migrating the store at {url} failed")]
    Migrate {
        url: String,
        #[source]
        source: DbErr,
    },
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    connection: DatabaseConnection,
    /// With SQLite one connection alone writes, beside the one that adds to the audit, so that what it has in memory is
    /// seldom out of date.
    writing: DatabaseConnection,
    /// How often this process changed something, beside what it adds to the audit.
    changes: Arc<AtomicU64>,
    /// SQLite has one writer. Waiting for it here is fair and wakes at once; its own way is to sleep and look again.
    writer: Option<Arc<Mutex<()>>>,
    begun_log: Option<Arc<Path>>,
    durability: Durability,
    file: Option<Arc<Path>>,
    patience: Duration,
    /// A transaction was not committed, and SQLite may have ended it by itself.
    is_suspect: Arc<AtomicBool>,
}

impl Store {
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let shown = broker::without_secrets(&options.url);
        let mut connect = ConnectOptions::new(options.url.clone());
        connect.sqlx_logging(false).acquire_timeout(options.patience).connect_timeout(options.patience);
        let is_sqlite = options.url.starts_with("sqlite:");
        if is_sqlite {
            make_folder(&options.url)?;
            let durability = options.durability;
            connect.max_connections(SQLITE_CONNECTIONS).min_connections(SQLITE_CONNECTIONS);
            connect.idle_timeout(None::<Duration>).max_lifetime(None::<Duration>).test_before_acquire(false);
            connect.map_sqlx_sqlite_opts(move |options| sqlite(options, durability));
        } else if options.url.starts_with("postgres:") || options.url.starts_with("postgresql:") {
            connect.max_connections(options.max_connections);
            let patience = options.patience;
            connect.map_sqlx_postgres_opts(move |options| postgres(options, patience * 3 / 4, patience));
        } else {
            return Err(Error::Address(shown));
        }
        // Alone: connections that are opened while another sets the journal mode or migrates may find the file locked,
        // or remember a schema that was half done.
        let mut alone = connect.clone();
        alone.max_connections(1).min_connections(1);
        if !is_sqlite {
            let patience = options.patience;
            alone.map_sqlx_postgres_opts(move |options| postgres(options, MIGRATE_WITHIN, patience));
        }
        let opened = async |options| {
            let opened = Database::connect(options).await;
            opened.map_err(|source| Error::Open { url: shown.clone(), source })
        };
        let writing = opened(alone).await?;
        let migrated = migrate(&writing).await;
        migrated.map_err(|source| Error::Migrate { url: shown.clone(), source })?;
        let connection = opened(connect).await?;
        let writing = if is_sqlite { writing } else { connection.clone() };
        let writer = is_sqlite.then(Arc::default);
        let begun_log = begun_log(&options.url);
        let durability = options.durability;
        let file = file(&options.url).map(Arc::from);
        let patience = options.patience;
        Ok(Self {
            connection,
            writing,
            changes: Arc::default(),
            writer,
            begun_log,
            durability,
            file,
            patience,
            is_suspect: Arc::default(),
        })
    }

    pub fn read(&self) -> &DatabaseConnection {
        &self.connection
    }

    pub fn is_postgres(&self) -> bool {
        self.connection.get_database_backend() == DbBackend::Postgres
    }

    /// Where calls that begin are written down beside a store that is a file, now or when it was opened another way.
    pub fn begun_log(&self) -> Option<&Path> {
        self.begun_log.as_deref()
    }

    /// Whether a line in a file is as good as a commit. One that outlives a loss of power is more.
    pub fn takes_lines(&self) -> bool {
        self.durability == Durability::Process
    }

    /// The file of a store that is one, for whoever adds to the audit by a connection of its own. To write takes its `turn`.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// How long anyone waits for the store.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// A number that changes with everything that is changed, where nobody but this process changes anything: a file has
    /// one owner, a server may have many.
    pub fn changes(&self) -> Option<u64> {
        self.writer.is_some().then(|| self.changes.load(Ordering::Acquire))
    }

    /// A transaction that may write. It is undone unless it is committed.
    pub async fn write(&self) -> Result<Write, DbErr> {
        let turn = match &self.writer {
            Some(writer) => Some(writer.clone().lock_owned().await),
            None => None,
        };
        let options = TransactionOptions {
            sqlite_transaction_mode: turn.is_some().then_some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        if turn.is_some() && self.is_suspect.swap(false, Ordering::AcqRel) {
            self.renew_if_stuck().await?;
        }
        let transaction = self.writing.begin_with_options(options).await?;
        let (changes, is_suspect) = (self.changes.clone(), self.is_suspect.clone());
        let open = Open { changes, is_suspect, is_committed: false, turn };
        Ok(Write { transaction, store: self.clone(), open })
    }

    /// For a single statement that writes: it is committed when it is done.
    pub async fn turn(&self) -> Turn<'_> {
        let turn = match &self.writer {
            Some(writer) => Some(writer.lock().await),
            None => None,
        };
        Turn { connection: &self.writing, _turn: turn }
    }

    /// SQLite may end a transaction by itself, as on a full disk. sqlx then counts it as open for ever, and what is committed
    /// after it is not. Called with the turn of the one writer, when nothing may be open.
    async fn renew_if_stuck(&self) -> Result<(), DbErr> {
        let mut connection = self.writing.get_sqlite_connection_pool().acquire().await.map_err(unusable)?;
        // What is still to be rolled back is, by then.
        connection.ping().await.map_err(unusable)?;
        if connection.is_in_transaction() {
            connection.close().await.map_err(unusable)?;
        }
        Ok(())
    }

    pub async fn close(self) {
        // What is committed is committed; a connection that does not close well loses nothing.
        drop(self.connection.close().await);
        drop(self.writing.close().await);
    }
}

/// A transaction, and the turn of the one writer.
#[derive(Debug)]
pub struct Write {
    transaction: DatabaseTransaction,
    store: Store,
    /// Dropped last: the turn ends when the transaction has.
    open: Open,
}

/// A transaction that is not committed yet. Dropped as such, the connection is looked at before it is used again.
#[derive(Debug)]
struct Open {
    changes: Arc<AtomicU64>,
    is_suspect: Arc<AtomicBool>,
    is_committed: bool,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.is_committed {
            self.is_suspect.store(true, Ordering::Release);
        }
    }
}

impl Write {
    pub async fn commit(self) -> Result<(), DbErr> {
        let Self { transaction, store, mut open } = self;
        let committed = transaction.commit().await;
        open.changes.fetch_add(1, Ordering::Release);
        open.is_committed = committed.is_ok();
        if !open.is_committed
            && open.turn.is_some()
            && let Err(error) = store.renew_if_stuck().await
        {
            warn!(%error, "Write connection not renewed; retrying.");
        }
        committed
    }
}

impl Deref for Write {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        &self.transaction
    }
}

/// The turn of the one writer.
#[derive(Debug)]
pub struct Turn<'s> {
    connection: &'s DatabaseConnection,
    _turn: Option<MutexGuard<'s, ()>>,
}

impl Deref for Turn<'_> {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        self.connection
    }
}

fn sqlite(options: SqliteConnectOptions, durability: Durability) -> SqliteConnectOptions {
    options
        .create_if_missing(true)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("synchronous", durability.pragma())
        // Whoever commits moves the log into the file now and then, and waits for the disk: seldom.
        .pragma("wal_autocheckpoint", "4000")
}

/// A gateway that stands still in the middle of a transaction would keep what it has locked from all others. The server
/// ends such a transaction well before the others lose their patience. A statement that waits for a lock is ended by the
/// server before its gateway gives it up, so nothing is written that was given up.
fn postgres(options: PgConnectOptions, lock: Duration, patience: Duration) -> PgConnectOptions {
    let idle = (patience / 2).max(SHORTEST_IDLE).as_millis().to_string();
    options.options([
        ("lock_timeout", lock.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", idle),
    ])
}

/// Several gateways may start at once on an empty database: one makes the tables, the others wait for it. The lock goes
/// with the connection, at the latest.
async fn migrate(alone: &DatabaseConnection) -> Result<(), DbErr> {
    let is_postgres = alone.get_database_backend() == DbBackend::Postgres;
    if is_postgres {
        alone.execute_unprepared(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})")).await?;
    }
    migration::Migrator::up(alone, None).await?;
    if is_postgres {
        alone.execute_unprepared(&format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})")).await?;
    }
    Ok(())
}

fn unusable(error: sqlx::Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error)))
}

fn make_folder(url: &str) -> Result<(), Error> {
    match file(url).as_deref().and_then(Path::parent) {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|error| Error::Folder(folder.to_owned(), error))
        }
        _ => Ok(()),
    }
}

fn begun_log(url: &str) -> Option<Arc<Path>> {
    let mut path = file(url)?.into_os_string();
    path.push("-begun");
    Some(PathBuf::from(path).into())
}

/// The file of a store that is one, under the name by which the store itself opens it.
pub(crate) fn file(url: &str) -> Option<PathBuf> {
    let (path, settings) = url.strip_prefix("sqlite:")?.split_once('?').unwrap_or((url, ""));
    let is_memory = path.ends_with(":memory:") || settings.split('&').any(|setting| setting == "mode=memory");
    let options = url.parse::<SqliteConnectOptions>().ok().filter(|_| !is_memory)?;
    Some(options.get_filename().to_owned()).filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_by_which_the_store_opens_it() {
        for (url, path) in [
            ("sqlite:///var/lib/gateway.db", Some("/var/lib/gateway.db")),
            ("sqlite://gateway.db?mode=rwc", Some("gateway.db")),
            ("sqlite:gateway.db", Some("gateway.db")),
            ("sqlite:///my data/gateway.db", Some("/my data/gateway.db")),
            ("sqlite:///my%20data/gateway.db?mode=rw&cache=private", Some("/my data/gateway.db")),
            ("sqlite::memory:", None),
            ("sqlite://:memory:", None),
            ("sqlite://shared?mode=memory", None),
            ("sqlite://", None),
            ("postgres://localhost/gateway", None),
        ] {
            assert_eq!(file(url).as_deref(), path.map(Path::new), "{url}");
        }
    }
}
