//! Whether the audit is whole. The chain is followed here, so that nothing but the rows is taken from the gateway.

mod heads; // signed heads, from wherever they are kept

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use subjects::audit::{Chain, Head, Row, pruning_is_signed};

use self::heads::Gathered;
use super::{
    audit::lines,
    client::{Ask, Gateway},
};
use crate::{
    cli,
    error::{Error, Exit},
    print,
};

/// The first line of an export: where the chain begins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pruned {
    pruned_seq: i64,
    pruned_hash: String,
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    rows: i64,
    last_seq: i64,
    /// Signed heads that were met on the way.
    heads: usize,
    /// How many heads there were to hold the chain against, by where they are kept.
    from_nats: usize,
    from_file: usize,
    from_gateway: usize,
    key: Option<String>,
    bad_row: Option<i64>,
    problem: Option<String>,
    warnings: Vec<String>,
}

pub(super) async fn run(
    link: &cli::GatewayLink,
    nats: &cli::Link,
    command: &cli::Verify,
    json: bool,
) -> Result<Exit, Error> {
    let gateway = if command.file.is_some() { None } else { Some(Gateway::open(link)?) };
    // The heads first: the chain goes on while we read, and must reach at least as far as they do.
    let mut gathered = heads::gather(gateway.as_ref(), nats, command).await?;
    let report = match (&gateway, &command.file) {
        (_, Some(path)) => {
            if command.older {
                gathered.only_until(last_of(path)?);
            }
            follow(Box::pin(stream::iter(file_lines(path)?)), gathered).await?
        }
        (Some(gateway), None) => {
            let response = gateway.stream(Ask::path(&["audit", "export"])).await?;
            follow(lines(gateway, response), gathered).await?
        }
        (None, None) => return Ok(Exit::Usage),
    };
    let exit = if report.ok { Exit::Done } else { Exit::Failed };
    if json {
        print::json(&report);
    } else {
        show(&report);
    }
    Ok(exit)
}

async fn follow(
    mut lines: impl Stream<Item = Result<String, Error>> + Unpin,
    gathered: Gathered,
) -> Result<Report, Error> {
    let unreadable = |number: usize, error: serde_json::Error| {
        Error::GatewayAnswer(format!("line {number} is no row of an audit: {error}"))
    };
    let first = lines.next().await.transpose()?.unwrap_or_default();
    let begin: Pruned = serde_json::from_str(&first).map_err(|error| unreadable(1, error))?;
    let mut report = Report {
        ok: false,
        rows: 0,
        last_seq: begin.pruned_seq,
        heads: 0,
        from_nats: gathered.from_nats,
        from_file: gathered.from_file,
        from_gateway: gathered.from_gateway,
        key: gathered.key,
        bad_row: None,
        problem: gathered.problem,
        warnings: gathered.warnings,
    };
    if report.problem.is_some() {
        return Ok(report);
    }
    let heads: Vec<Head> = gathered.heads;
    if !heads.is_empty() && !pruning_is_signed(begin.pruned_seq, &begin.pruned_hash, &heads) {
        report.bad_row = Some(begin.pruned_seq);
        report.problem =
            Some(format!("rows up to {} are gone, and no signed head says so", begin.pruned_seq));
        return Ok(report);
    }
    let mut chain = Chain::begin(begin.pruned_seq, &begin.pruned_hash, heads);
    let mut number = 1;
    while let Some(line) = lines.next().await {
        number += 1;
        let row: Row = serde_json::from_str(&line?).map_err(|error| unreadable(number, error))?;
        if let Err(broken) = chain.follow(&row) {
            report.bad_row = Some(broken.row());
            report.problem = Some(broken.to_string());
            return Ok(report);
        }
        report.rows += 1;
        report.last_seq = row.seq;
    }
    match chain.end() {
        Ok((_, met)) => (report.ok, report.heads) = (true, met),
        Err(broken) => {
            report.bad_row = Some(broken.row());
            report.problem = Some(broken.to_string());
        }
    }
    Ok(report)
}

fn show(report: &Report) {
    for warning in &report.warnings {
        print::note(&format!("warning: {}", print::safe(warning)));
    }
    match (&report.problem, report.bad_row) {
        (None, _) => print::line(&format!(
            "the audit is whole: {} rows up to {}, {} signed heads met",
            report.rows, report.last_seq, report.heads
        )),
        (Some(problem), Some(row)) => {
            print::line(&format!("the audit is NOT whole, from row {row} on: {}", print::safe(problem)));
            print::note(&format!("{} rows before it are as they were written", report.rows));
        }
        (Some(problem), None) => {
            print::line(&format!("the audit is NOT proven whole: {}", print::safe(problem)));
        }
    }
    print::note(&format!(
        "heads: {} from NATS, {} from a file, {} from the gateway; signed by {}",
        report.from_nats,
        report.from_file,
        report.from_gateway,
        report.key.as_deref().map_or_else(|| "nobody".to_owned(), print::safe)
    ));
}

fn file_lines(path: &Path) -> Result<impl Iterator<Item = Result<String, Error>> + use<>, Error> {
    let path = path.to_owned();
    let file = File::open(&path).map_err(|error| Error::File(path.clone(), error))?;
    let lines = BufReader::new(file).lines();
    Ok(lines.map(move |line| line.map_err(|error| Error::File(path.clone(), error))))
}

/// The last row that a file holds.
fn last_of(path: &Path) -> Result<i64, Error> {
    let mut last = 0;
    for line in file_lines(path)?.skip(1) {
        if let Ok(row) = serde_json::from_str::<Row>(&line?) {
            last = row.seq;
        }
    }
    Ok(last)
}
