//! Adds rows to a store that is a file, by a connection that it keeps. One from the pool would be asked how it is each time
//! that it goes back there, and the next commit would wait for the answer.

use sea_orm::{
    DbErr, RuntimeErr,
    sqlx::{
        self, AssertSqlSafe, ConnectOptions,
        sqlite::{SqliteConnectOptions, SqliteConnection},
    },
};
use subjects::audit::Row;

const INTO: &str = "INSERT INTO audit (seq, created_at, call_id, agent, subject, user_id, task_id, project_id, \
                    run_id, job_id, tool, decision, status, error_type, duration_us, arguments_digest, trace_id, \
                    hash) VALUES ";
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

#[derive(Debug)]
pub(super) struct Appender(SqliteConnection);

impl Appender {
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<Self, DbErr> {
        Ok(Self(options.connect().await.map_err(failed)?))
    }

    /// One statement, committed when it is done. Whoever calls has the turn of the one writer.
    pub(super) async fn add(&mut self, rows: Vec<Row>) -> Result<(), DbErr> {
        // The values are bound; of the rows, only how many there are is in the text.
        let text = format!("{INTO}{}", vec![ROW; rows.len()].join(", "));
        let mut query = sqlx::query(AssertSqlSafe(text));
        for row in rows {
            query = query
                .bind(row.seq)
                .bind(row.created_at)
                .bind(row.call_id)
                .bind(row.agent)
                .bind(row.subject)
                .bind(row.user_id)
                .bind(row.task_id)
                .bind(row.project_id)
                .bind(row.run_id)
                .bind(row.job_id)
                .bind(row.tool)
                .bind(row.decision)
                .bind(row.status)
                .bind(row.error_type)
                .bind(row.duration_us)
                .bind(row.arguments_digest)
                .bind(row.trace_id)
                .bind(row.hash);
        }
        query.execute(&mut self.0).await.map_err(failed)?;
        Ok(())
    }
}

fn failed(error: sqlx::Error) -> DbErr {
    DbErr::Exec(RuntimeErr::SqlxError(error.into()))
}
