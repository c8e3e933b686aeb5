//! `cynode-gateway check`: opens and migrates the store, and verifies the audit.

use audit::{Seal, SealError};
use broker::Chain;
use sea_orm::DbErr;
use settings::Report;
use store::Store;
use subjects::audit::{ChainError, ChainVerifier};

use crate::{
    config::Config,
    data_lock::{self, DataLock},
};

/// Rows per query when the audit is verified.
const VERIFY_BATCH: u64 = 1000;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Locked(#[from] data_lock::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the store is not available")]
    Query(#[from] DbErr),
    #[error("audit verification failed")]
    Audit(#[from] ChainError),
    #[error("reading the signed heads of the audit")]
    Seal(#[from] SealError),
}

/// Opens and migrates the store, verifies the audit's hash chain and its signed heads, and reaches NATS.
pub async fn check(config: &Config) -> Report {
    let mut report = Report::default();
    if let Err(error) = check_store(config, &mut report).await {
        let (what, to_do) = match &error {
            // It says what to do.
            Error::Locked(_) => ("store", ""),
            Error::Store(_) | Error::Query(_) => ("store", "Correct store.url, or look at the database."),
            Error::Audit(_) => {
                ("audit", "Find out who changed the store, or restore it: docs/gateway.md, “The audit”.")
            }
            Error::Seal(_) => ("audit", "Correct audit.signing_key_file or audit.head_file."),
        };
        report.failed(what, Chain(&error), to_do);
    }
    let Some(nats) = &config.nats else {
        report.remark("nats", "none: no jobs, and no handoffs in the console; nats.url names one");
        return report;
    };
    const TO_DO: &str = "Start nats-server, or correct nats.url.";
    match broker::connect(&nats.options).await {
        Ok(broker) => {
            let url = broker::redact_url(&nats.options.url);
            report.good("nats", format!("{url}, nats-server {}", broker.client.server_info().version));
        }
        Err(error) if error.is_transient() => {
            let why = Chain(&error);
            report.remark("nats", format!("{why}. The gateway starts and connects later. {TO_DO}"));
        }
        Err(error) => report.failed("nats", Chain(&error), TO_DO),
    }
    report
}

async fn check_store(config: &Config, report: &mut Report) -> Result<(), Error> {
    let file = store::sqlite_file(&config.store.url);
    let lock = file.map(|file| DataLock::acquire(&config.data, Some(&file))).transpose()?;
    let store = Store::open(&config.store).await?;
    let place = if store.is_postgres() { "PostgreSQL".to_owned() } else { config.data.display().to_string() };
    report.good("store", format!("{place}, migrated; {} built-in tools", control::all().len()));
    let seal = Seal::open(&config.audit.signing_key_file, config.audit.head_file.clone(), None)?;
    let bounds = audit::bounds(store.read()).await?;
    let key = seal.public_key();
    let heads = seal.heads()?.into_iter().filter(|head| head.is_signed_by(&key)).collect();
    let mut chain = ChainVerifier::new(bounds.pruned_seq, &bounds.pruned_hash, heads);
    let mut last = bounds.pruned_seq;
    loop {
        let rows = audit::rows_after(&store, last, VERIFY_BATCH).await?;
        let Some(row) = rows.last() else { break };
        last = row.seq;
        rows.iter().try_for_each(|row| chain.check(row))?;
    }
    let (rows, heads) = chain.finish()?;
    report.good("audit", format!("{rows} rows verified, {heads} signed heads match"));
    store.close().await;
    drop(lock);
    Ok(())
}
