//! `cynodectl audit verify`: follows the hash chain locally, so that only the rows are taken from the
//! gateway.

mod edge;
mod heads;
mod other_signers;

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use api::{NodeAudit, Pruned};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use subjects::audit::{ChainVerifier, Row, pruning_is_signed};

use self::{
    edge::{EdgeReport, RowsOfNodes},
    heads::CollectedHeads,
    other_signers::OtherSigners,
};
use super::{ApiRequest, Gateway, audit::lines};
use crate::{
    cli,
    error::{Error, Exit},
    print,
};

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    rows: i64,
    last_seq: i64,
    /// Signed heads that matched a row.
    heads: usize,
    /// Number of heads that the chain was checked against, by where they are stored.
    from_nats: usize,
    from_file: usize,
    from_gateway: usize,
    key: Option<String>,
    bad_row: Option<i64>,
    /// The last row that is as it was sealed before `bad_row` was. Rows between the two may have been
    /// replaced, for example by a restored backup, and sealed again.
    unchanged_to: Option<i64>,
    problem: Option<String>,
    warnings: Vec<String>,
    /// The audit of nodes. Absent for a file.
    nodes: Option<EdgeReport>,
    #[serde(skip)]
    rows_of_nodes: RowsOfNodes,
    #[serde(skip)]
    is_pruned: bool,
}

pub(super) async fn run(
    link: &cli::GatewayLink,
    nats: &cli::Link,
    command: &cli::Verify,
    json: bool,
) -> Result<Exit, Error> {
    let gateway = if command.file.is_some() { None } else { Some(Gateway::open(link)?) };
    // Heads are read first: the chain grows meanwhile and must reach at least as far as they do.
    let mut collected = heads::collect(gateway.as_ref(), nats, command).await?;
    let report = match (&gateway, &command.file) {
        (_, Some(path)) => {
            if command.older {
                collected.drop_after(last_row(path)?);
            }
            follow(Box::pin(stream::iter(file_lines(path)?)), collected).await?
        }
        (Some(gateway), None) => {
            // Read first: every line that it counts has its row in the export.
            let known: NodeAudit = gateway.ask(ApiRequest::get(&["audit", "nodes"])).await?;
            let response = gateway.stream(ApiRequest::get(&["audit", "export"])).await?;
            let mut report = follow(lines(gateway, response), collected).await?;
            let warnings = &mut report.warnings;
            let messages = if known.leases.is_empty() && known.alarms.is_empty() && !command.nats {
                None
            } else {
                heads::read_edge_audit(nats, command, warnings).await?
            };
            let nodes = edge::verify(&known, &report.rows_of_nodes, messages.as_deref(), report.is_pruned);
            report.ok &= nodes.problems.is_empty();
            report.nodes = Some(nodes);
            report
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

/// Follows the chain row by row and stops at the first broken one.
async fn follow(
    mut lines: impl Stream<Item = Result<String, Error>> + Unpin,
    collected: CollectedHeads,
) -> Result<Report, Error> {
    let unreadable = |number: usize, error: serde_json::Error| {
        Error::GatewayResponse(format!("line {number} is not an audit row: {error}"))
    };
    let first = lines.next().await.transpose()?.unwrap_or_default();
    let begin: Pruned = serde_json::from_str(&first).map_err(|error| unreadable(1, error))?;
    let mut report = Report {
        ok: false,
        rows: 0,
        last_seq: begin.pruned_seq,
        heads: 0,
        from_nats: collected.from_nats,
        from_file: collected.from_file,
        from_gateway: collected.from_gateway,
        key: collected.key,
        bad_row: None,
        unchanged_to: None,
        problem: collected.problem,
        warnings: collected.warnings,
        nodes: None,
        rows_of_nodes: RowsOfNodes::default(),
        is_pruned: begin.pruned_seq > 0,
    };
    if report.problem.is_some() {
        return Ok(report);
    }
    let heads = collected.heads;
    let is_pruning_confirmed =
        heads.is_empty() || pruning_is_signed(begin.pruned_seq, &begin.pruned_hash, &heads);
    let all = heads.iter().chain(&collected.of_others);
    let sealed: Vec<(i64, i64)> = all.map(|head| (head.seq, head.at)).collect();
    let mut others = OtherSigners::new(collected.of_others, begin.pruned_seq);
    let mut chain = ChainVerifier::new(begin.pruned_seq, &begin.pruned_hash, heads);
    let mut number = 1;
    while let Some(line) = lines.next().await {
        number += 1;
        let row: Row = serde_json::from_str(&line?).map_err(|error| unreadable(number, error))?;
        if let Err(broken) = chain.check(&row) {
            report.bad_row = Some(broken.row());
            report.unchanged_to = last_unchanged(&sealed, broken.row(), report.last_seq);
            report.problem = Some(broken.to_string());
            return Ok(report);
        }
        others.check(row.seq, &row.hash);
        report.rows_of_nodes.add(&row);
        report.rows += 1;
        report.last_seq = row.seq;
    }
    let (matched, contradicted) = others.finish(report.last_seq);
    report.warnings.extend(others.warnings());
    let end = chain.finish().and_then(|(_, met)| contradicted.map_or(Ok(met), Err));
    match end {
        Ok(_) if !is_pruning_confirmed && !others.confirm_pruning(begin.pruned_seq, &begin.pruned_hash) => {
            report.bad_row = Some(begin.pruned_seq);
            report.problem = Some(format!(
                "rows up to {} are missing, and no signed head records their pruning",
                begin.pruned_seq
            ));
        }
        Ok(met) => (report.ok, report.heads) = (true, met + matched),
        Err(broken) => {
            report.bad_row = Some(broken.row());
            report.unchanged_to = last_unchanged(&sealed, broken.row(), report.last_seq);
            report.problem = Some(broken.to_string());
        }
    }
    Ok(report)
}

/// Returns the last row before `bad_row` that a head confirms which was sealed before that of `bad_row`.
/// Later heads confirm whatever the chain held then. `sealed` has the row and the time of each head. Without
/// a head at `bad_row` that is the last row that was read. `None` if no head confirms any.
fn last_unchanged(sealed: &[(i64, i64)], bad_row: i64, last_seq: i64) -> Option<i64> {
    let Some(before) = sealed.iter().filter(|(row, _)| *row == bad_row).map(|(_, at)| *at).min() else {
        return Some(last_seq);
    };
    let confirmed = sealed.iter().filter(|(row, at)| *row < bad_row && *at < before);
    confirmed.map(|(row, _)| *row).max()
}

fn show(report: &Report) {
    for warning in &report.warnings {
        print::note(&format!("warning: {}", print::sanitize(warning)));
    }
    match (&report.problem, report.bad_row) {
        (None, _) => print::line(&format!(
            "the audit log is intact: {} rows up to {}, {} signed heads matched",
            report.rows, report.last_seq, report.heads
        )),
        (Some(problem), Some(row)) => {
            print::line(&format!(
                "the audit log is NOT intact, from row {row} on: {}",
                print::sanitize(problem)
            ));
            print::note(&match report.unchanged_to {
                Some(last) if last + 1 == row => format!("the rows up to {last} are unchanged"),
                Some(last) => format!(
                    "the rows up to {last} are unchanged; those from {} on may have been replaced, for \
                     example by a restored backup",
                    last + 1
                ),
                None => "no signed head confirms the rows before it".to_owned(),
            });
        }
        (Some(problem), None) => {
            print::line(&format!("the audit log is NOT proven intact: {}", print::sanitize(problem)));
        }
    }
    if let Some(nodes) = report.nodes.as_ref().filter(|nodes| nodes.leases > 0 || !nodes.problems.is_empty())
    {
        show_nodes(nodes);
    }
    print::note(&format!(
        "heads: {} from NATS, {} from a file, {} from the gateway; signed by {}",
        report.from_nats,
        report.from_file,
        report.from_gateway,
        report.key.as_deref().map_or_else(|| "no key".to_owned(), print::sanitize)
    ));
}

fn show_nodes(nodes: &EdgeReport) {
    let EdgeReport { leases, lines, rows, problems, .. } = nodes;
    if problems.is_empty() {
        print::line(&format!(
            "the audit of nodes is intact: {leases} leases, {lines} lines, {rows} rows in the gateway's audit"
        ));
        return;
    }
    print::line(&format!("the audit of nodes is NOT intact; problems: {}", problems.len()));
    for problem in problems {
        print::line(&format!("  {}", print::sanitize(problem)));
    }
}

fn file_lines(path: &Path) -> Result<impl Iterator<Item = Result<String, Error>> + use<>, Error> {
    let path = path.to_owned();
    let file = File::open(&path).map_err(|error| Error::File(path.clone(), error))?;
    let lines = BufReader::new(file).lines();
    Ok(lines.map(move |line| line.map_err(|error| Error::File(path.clone(), error))))
}

/// Returns the sequence of the last row in a file.
fn last_row(path: &Path) -> Result<i64, Error> {
    let mut last = 0;
    for line in file_lines(path)?.skip(1) {
        if let Ok(row) = serde_json::from_str::<Row>(&line?) {
            last = row.seq;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 8 was sealed, then a backup up to row 5 was restored, and other rows 6 and 7 were sealed.
    #[test]
    fn heads_sealed_after_a_restore_confirm_nothing() {
        let sealed = [(3, 10), (5, 20), (8, 30), (6, 40), (7, 50)];
        assert_eq!(last_unchanged(&sealed, 8, 7), Some(5));
        assert_eq!(last_unchanged(&sealed[2..], 8, 7), None);
        // A row that does not follow from the one before it.
        assert_eq!(last_unchanged(&sealed, 4, 3), Some(3));
    }
}
