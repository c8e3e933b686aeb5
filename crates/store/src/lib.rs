//! Opens the store, SQLite or PostgreSQL by its URL, migrates it, and hands out connections and transactions.
//!
//! SQLite has a single writer, which this process schedules itself; the code paths are otherwise the same.

mod checkpoint;
pub mod clock;
mod commits;
pub mod entity;
mod migration;
mod outbox;
mod server_clock;

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
    EntityTrait, RuntimeErr, SqliteTransactionMode, TransactionOptions, TransactionTrait,
    sea_query::{Expr, ExprTrait},
    sqlx::{
        self, Connection,
        postgres::PgConnectOptions,
        sqlite::{SqliteConnectOptions, SqliteJournalMode},
    },
};
use sea_orm_migration::MigratorTrait;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tracing::warn;

pub use checkpoint::Checkpointer;
use commits::Commits;
use entity::revision;
pub use outbox::{NO_STREAM, NewMessage, Outbox, SendIf, Waiting};

/// Read connections. In WAL mode readers never wait for the writer and a query takes microseconds, so a few
/// suffice. One of them checkpoints now and then.
const SQLITE_CONNECTIONS: u32 = 5;
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a starting gateway waits for another instance to finish migrating.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(120);
/// Key of the advisory lock that serialises migrations. All versions of the gateway must use the same key.
const MIGRATION_LOCK: i64 = 0x6379_6e6f_6465_0002;

#[derive(Clone, Debug)]
pub struct Options {
    pub url: String,
    pub max_connections: u32,
    /// How long a call waits for the store before it is denied.
    pub patience: Duration,
    pub durability: Durability,
}

/// What a commit survives with SQLite. PostgreSQL has its own configuration for this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A crash of this process. A power failure may lose the most recent commits.
    #[default]
    Process,
    /// Also a power failure; every commit waits for the disk.
    Power,
}

impl Durability {
    /// Returns the value of SQLite's `synchronous` pragma.
    pub fn pragma(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid store.url {}; expected sqlite://<path> or postgres://…", .0)]
    InvalidUrl(String),
    #[error("cannot create the store folder {}", .0.display())]
    Folder(PathBuf, #[source] std::io::Error),
    #[error("cannot open the store at {url}")]
    Open { url: String, source: DbErr },
    #[error("migrating the store at {url} failed")]
    Migrate { url: String, source: DbErr },
}

/// A handle to the open store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    read_connection: DatabaseConnection,
    /// With SQLite a pool of one connection, so that its page cache is seldom out of date: only the audit
    /// appender writes through another connection. With PostgreSQL the same pool as `read_connection`.
    write_connection: DatabaseConnection,
    /// Number of transactions that this process has committed or tried to commit.
    changes: Arc<AtomicU64>,
    /// Serialises writers with SQLite. This mutex is fair and wakes the next writer at once, whereas SQLite's
    /// busy handler sleeps and polls. `None` with PostgreSQL.
    write_lock: Option<Arc<Mutex<()>>>,
    in_flight_log: Option<Arc<Path>>,
    durability: Durability,
    sqlite_file: Option<Arc<Path>>,
    patience: Duration,
    /// Set when a transaction ends without a commit: SQLite may have rolled it back on its own, so the write
    /// connection is checked before its next use.
    needs_check: Arc<AtomicBool>,
    commits: Arc<Commits>,
}

impl Store {
    /// Opens the store and applies outstanding migrations. Creates the SQLite file and its folder if they are
    /// missing.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let shown = broker::redact_url(&options.url);
        let mut connect = ConnectOptions::new(options.url.clone());
        connect.sqlx_logging(false).acquire_timeout(options.patience).connect_timeout(options.patience);
        let is_sqlite = options.url.starts_with("sqlite:");
        if is_sqlite {
            create_folder(&options.url)?;
            let durability = options.durability;
            connect.max_connections(SQLITE_CONNECTIONS).min_connections(SQLITE_CONNECTIONS);
            connect.idle_timeout(None::<Duration>).max_lifetime(None::<Duration>).test_before_acquire(false);
            connect.map_sqlx_sqlite_opts(move |options| sqlite_options(options, durability));
        } else if options.url.starts_with("postgres:") || options.url.starts_with("postgresql:") {
            connect.max_connections(options.max_connections);
            let patience = options.patience;
            connect
                .map_sqlx_postgres_opts(move |options| postgres_options(options, patience * 3 / 4, patience));
        } else {
            return Err(Error::InvalidUrl(shown));
        }
        // Migrate through a single connection: others opened while it sets the journal mode or migrates may
        // find the file locked, or cache a half-migrated schema.
        let mut single = connect.clone();
        single.max_connections(1).min_connections(1);
        if !is_sqlite {
            // Not the patience of calls: a loaded machine may pause between the statements of a migration.
            single.map_sqlx_postgres_opts(|options| {
                postgres_options(options, MIGRATION_TIMEOUT, MIGRATION_TIMEOUT)
            });
        }
        let connect_with = async |options| {
            let connected = Database::connect(options).await;
            connected.map_err(|source| Error::Open { url: shown.clone(), source })
        };
        let write_connection = connect_with(single).await?;
        let migrated = migrate(&write_connection).await;
        migrated.map_err(|source| Error::Migrate { url: shown.clone(), source })?;
        let read_connection = connect_with(connect).await?;
        let write_connection = if is_sqlite { write_connection } else { read_connection.clone() };
        let store = Self {
            read_connection,
            write_connection,
            changes: Arc::default(),
            write_lock: is_sqlite.then(Arc::default),
            in_flight_log: in_flight_log(&options.url).map(Arc::from),
            durability: options.durability,
            sqlite_file: sqlite_file(&options.url).map(Arc::from),
            patience: options.patience,
            needs_check: Arc::default(),
            commits: Arc::default(),
        };
        store.follow_server_clock().await.map_err(|source| Error::Open { url: shown, source })?;
        Ok(store)
    }

    /// Returns the connection for reads.
    pub fn read(&self) -> &DatabaseConnection {
        &self.read_connection
    }

    pub fn is_postgres(&self) -> bool {
        self.read_connection.get_database_backend() == DbBackend::Postgres
    }

    /// Returns the path of the in-flight log, next to the SQLite file. `None` for a store that is not a file.
    ///
    /// The path does not depend on the durability: a log written by an earlier run with another durability is
    /// found too.
    pub fn in_flight_log(&self) -> Option<&Path> {
        self.in_flight_log.as_deref()
    }

    /// Returns whether a line in the in-flight log is as durable as a commit. A commit that survives a power
    /// failure is more durable than a line.
    pub fn uses_in_flight_log(&self) -> bool {
        self.durability == Durability::Process
    }

    /// Returns the SQLite file, for the audit appender, which opens its own connection. Writing to it
    /// requires the guard of [`Store::acquire_writer`].
    pub fn sqlite_file(&self) -> Option<&Path> {
        self.sqlite_file.as_deref()
    }

    /// Returns how long a call waits for the store before it is denied.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns a number that differs after every transaction, so that callers can tell whether cached rows
    /// are current. Rows that the audit writes are not counted.
    ///
    /// `None` with PostgreSQL, where other instances may change the store as well.
    pub fn change_count(&self) -> Option<u64> {
        self.write_lock.is_some().then(|| self.changes.load(Ordering::Acquire))
    }

    /// Begins a transaction that may write. It is rolled back unless it is committed.
    ///
    /// With SQLite this first waits for the current writer to finish.
    pub async fn write(&self) -> Result<WriteTransaction, DbErr> {
        let guard = match &self.write_lock {
            Some(lock) => Some(lock.clone().lock_owned().await),
            None => None,
        };
        let options = TransactionOptions {
            sqlite_transaction_mode: guard.is_some().then_some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        if guard.is_some() && self.needs_check.swap(false, Ordering::AcqRel) {
            self.close_if_stuck().await?;
        }
        let transaction = self.write_connection.begin_with_options(options).await?;
        let (changes, needs_check) = (self.changes.clone(), self.needs_check.clone());
        let commits = self.commits.clone();
        let open = OpenTransaction { changes, needs_check, commits, is_committed: false, guard };
        Ok(WriteTransaction { transaction, store: self.clone(), open })
    }

    /// With PostgreSQL, sets [`clock::now`] to the time of its server. Call it now and then, since clocks
    /// drift and servers change.
    pub async fn follow_server_clock(&self) -> Result<(), DbErr> {
        if self.is_postgres() { server_clock::follow(self.read()).await } else { Ok(()) }
    }

    /// Waits for the current writer to finish and returns the write connection, for single statements that
    /// commit on their own. With PostgreSQL it does not wait.
    pub async fn acquire_writer(&self) -> WriterGuard<'_> {
        let guard = match &self.write_lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        let commits = Some(&*self.commits);
        WriterGuard { connection: &self.write_connection, commits, _guard: guard }
    }

    /// Makes a write that changes nothing. Fails if the store accepts none, for example on a full disk.
    pub async fn probe_write(&self) -> Result<(), DbErr> {
        let transaction = self.write().await?;
        // SQLite writes nothing for a row that is as it was, so it is changed and changed back.
        for change in [1, -1] {
            let changed = Expr::col(revision::Column::Value).add(change);
            let update = revision::Entity::update_many().col_expr(revision::Column::Value, changed);
            update.exec(&*transaction).await?;
        }
        transaction.commit().await
    }

    /// Closes the write connection if sqlx still counts a transaction as open; the pool then opens a new one.
    ///
    /// SQLite may roll back a transaction on its own, for example on a full disk. sqlx does not notice, and
    /// later commits on that connection have no effect. The caller must hold the write lock and have no open
    /// transaction.
    async fn close_if_stuck(&self) -> Result<(), DbErr> {
        let mut connection =
            self.write_connection.get_sqlite_connection_pool().acquire().await.map_err(connection_error)?;
        // The ping runs after a pending rollback, so the state below is final.
        connection.ping().await.map_err(connection_error)?;
        if connection.is_in_transaction() {
            connection.close().await.map_err(connection_error)?;
        }
        Ok(())
    }

    pub async fn close(self) {
        // Commits are durable already, so a connection that fails to close loses nothing.
        drop(self.read_connection.close().await);
        drop(self.write_connection.close().await);
    }
}

/// A transaction together with the write lock. Rolled back when it is dropped without a commit.
#[derive(Debug)]
pub struct WriteTransaction {
    transaction: DatabaseTransaction,
    store: Store,
    /// Declared last, hence dropped last: the write lock is released after the transaction has ended.
    open: OpenTransaction,
}

/// The write lock of a transaction. If dropped uncommitted, it marks the write connection to be checked
/// before its next use.
#[derive(Debug)]
struct OpenTransaction {
    changes: Arc<AtomicU64>,
    needs_check: Arc<AtomicBool>,
    commits: Arc<Commits>,
    is_committed: bool,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if self.is_committed {
            self.commits.add();
        } else {
            self.needs_check.store(true, Ordering::Release);
        }
    }
}

impl WriteTransaction {
    /// Commits. On an error the transaction may or may not have taken effect.
    pub async fn commit(self) -> Result<(), DbErr> {
        let Self { transaction, store, mut open } = self;
        let committed = transaction.commit().await;
        open.changes.fetch_add(1, Ordering::Release);
        open.is_committed = committed.is_ok();
        if !open.is_committed
            && open.guard.is_some()
            && let Err(error) = store.close_if_stuck().await
        {
            warn!(%error, "Write connection not renewed; retrying.");
        }
        committed
    }

    /// Rolls back and waits for it. A transaction that is only dropped keeps its locks for a moment, and
    /// queries that skip locked rows miss them meanwhile.
    pub async fn roll_back(self) -> Result<(), DbErr> {
        let Self { transaction, store: _, open } = self;
        let rolled_back = transaction.rollback().await;
        drop(open);
        rolled_back
    }
}

impl Deref for WriteTransaction {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        &self.transaction
    }
}

/// The write connection together with the write lock.
#[derive(Debug)]
pub struct WriterGuard<'s> {
    connection: &'s DatabaseConnection,
    /// `None` once it is known that nothing is written.
    commits: Option<&'s Commits>,
    _guard: Option<MutexGuard<'s, ()>>,
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        if let Some(commits) = self.commits {
            commits.add();
        }
    }
}

impl WriterGuard<'_> {
    /// Keeps other writers waiting, and writes nothing itself.
    pub(crate) fn without_commit(mut self) -> Self {
        self.commits = None;
        self
    }
}

impl Deref for WriterGuard<'_> {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        self.connection
    }
}

fn sqlite_options(options: SqliteConnectOptions, durability: Durability) -> SqliteConnectOptions {
    options
        .create_if_missing(true)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("synchronous", durability.pragma())
        // A checkpoint in a commit makes all writers wait for the disk. The checkpointer works beside them;
        // this one runs only if that cannot keep up: every 16,000 pages.
        .pragma("wal_autocheckpoint", "16000")
        // What is deleted is overwritten in the file, also on pages that are no longer used.
        .pragma("secure_delete", "ON")
}

/// Sets the server-side timeouts of a PostgreSQL connection.
///
/// A gateway that hangs inside a transaction would block the other instances, so the server aborts its
/// transaction after half of `patience`. The server also aborts a statement that waits for a lock before the
/// gateway stops waiting for it, so that no abandoned statement takes effect later.
fn postgres_options(
    options: PgConnectOptions,
    lock_timeout: Duration,
    patience: Duration,
) -> PgConnectOptions {
    let idle = (patience / 2).max(MIN_IDLE_TIMEOUT).as_millis().to_string();
    options.options([
        ("lock_timeout", lock_timeout.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", idle),
    ])
}

/// Applies outstanding migrations. With PostgreSQL, instances that start at the same time wait for the one
/// that migrates; the advisory lock is released at the latest when its connection closes.
async fn migrate(connection: &DatabaseConnection) -> Result<(), DbErr> {
    let is_postgres = connection.get_database_backend() == DbBackend::Postgres;
    if is_postgres {
        connection.execute_unprepared(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})")).await?;
    }
    migration::Migrator::up(connection, None).await?;
    if is_postgres {
        connection.execute_unprepared(&format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})")).await?;
    }
    Ok(())
}

fn connection_error(error: sqlx::Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error)))
}

fn create_folder(url: &str) -> Result<(), Error> {
    match sqlite_file(url).as_deref().and_then(Path::parent) {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|error| Error::Folder(folder.to_owned(), error))
        }
        _ => Ok(()),
    }
}

fn in_flight_log(url: &str) -> Option<PathBuf> {
    let mut path = sqlite_file(url)?.into_os_string();
    path.push("-begun");
    Some(PathBuf::from(path))
}

/// Returns the path of the SQLite file as sqlx opens it; `None` for an in-memory database or PostgreSQL.
pub fn sqlite_file(url: &str) -> Option<PathBuf> {
    let (path, settings) = url.strip_prefix("sqlite:")?.split_once('?').unwrap_or((url, ""));
    let is_memory = path.ends_with(":memory:") || settings.split('&').any(|setting| setting == "mode=memory");
    let options = url.parse::<SqliteConnectOptions>().ok().filter(|_| !is_memory)?;
    Some(options.get_filename().to_owned()).filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_file_is_the_path_that_sqlx_opens() {
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
            assert_eq!(sqlite_file(url).as_deref(), path.map(Path::new), "{url}");
        }
    }
}
