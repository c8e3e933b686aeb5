//! `cynodectl audit tail`, `query` and `export`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

use bytes::BytesMut;
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;
use serde_json::json;
use subjects::audit::Row;
use time::OffsetDateTime;

use super::{ApiRequest, Gateway, verify};
use crate::{
    cli,
    error::{Error, Exit},
    print,
};

/// Field name of server-sent events.
const DATA: &str = "data:";

pub(crate) async fn run(
    link: &cli::GatewayLink,
    nats: &cli::Link,
    command: cli::Audit,
    json: bool,
) -> Result<Exit, Error> {
    match command {
        cli::Audit::Tail { after, duration } => tail(&Gateway::open(link)?, after, duration, json).await,
        cli::Audit::Query(filter) => query(&Gateway::open(link)?, *filter, json).await,
        cli::Audit::Export { out } => export(&Gateway::open(link)?, out).await,
        cli::Audit::Verify(command) => Box::pin(verify::run(link, nats, &command, json)).await,
    }
}

async fn tail(
    gateway: &Gateway,
    after: Option<i64>,
    duration: Option<Duration>,
    json: bool,
) -> Result<Exit, Error> {
    let request = ApiRequest::get(&["audit", "tail"]).query(&json!({ "after": after }));
    let response = gateway.stream(request).await?;
    if !json {
        print::note("watching the audit log; press Ctrl-C to stop");
    }
    let until = async {
        match duration {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let mut lines = Box::pin(lines(gateway, response).take_until(Box::pin(until)));
    while let Some(line) = lines.next().await {
        let line = line?;
        let Some(data) = line.strip_prefix(DATA) else { continue };
        let row: Row =
            serde_json::from_str(data.trim()).map_err(|error| Error::GatewayResponse(error.to_string()))?;
        if json {
            print::json(&row);
        } else {
            print::line(&columns(&row).join("  "));
        }
    }
    Ok(Exit::Done)
}

async fn query(gateway: &Gateway, query: cli::Query, json: bool) -> Result<Exit, Error> {
    let since = query.since.map(|since| {
        let since = OffsetDateTime::now_utc() - since;
        (since.unix_timestamp_nanos() / 1_000).to_string()
    });
    let filters = [
        ("tool", query.tool),
        ("agent", query.agent),
        ("decision", query.decision),
        ("status", query.status),
        ("error_type", query.error_type),
        ("subject", query.token),
        ("user_id", query.user),
        ("task_id", query.task),
        ("call_id", query.call),
        ("trace_id", query.trace),
        ("lease_id", query.lease),
        ("profile", query.profile),
        ("since", since),
        ("before", query.before.map(|before| before.to_string())),
        ("limit", Some(query.limit.to_string())),
    ];
    let request = ApiRequest::get(&["audit"]).query(&BTreeMap::from(filters));
    let rows: Vec<Row> = gateway.ask(request).await?;
    if json {
        rows.iter().for_each(print::json);
    } else if rows.is_empty() {
        print::line("no rows");
    } else {
        let head = ["SEQ", "TIME", "AGENT", "USER", "TASK", "TOOL", "DECISION", "STATUS", "ERROR", "TOOK"];
        print::table(&head, rows.iter().map(columns).collect());
    }
    Ok(Exit::Done)
}

async fn export(gateway: &Gateway, out: Option<PathBuf>) -> Result<Exit, Error> {
    let response = gateway.stream(ApiRequest::get(&["audit", "export"])).await?;
    let mut pieces = response.bytes_stream();
    let Some(path) = out else {
        while let Some(piece) = pieces.next().await {
            print::foreign_bytes(&piece.map_err(|error| gateway.unreachable(error))?);
        }
        return Ok(Exit::Done);
    };
    let write_error = |error| Error::Write(path.clone(), error);
    let mut file = BufWriter::new(File::create_new(&path).map_err(write_error)?);
    while let Some(piece) = pieces.next().await {
        file.write_all(&piece.map_err(|error| gateway.unreachable(error))?).map_err(write_error)?;
    }
    file.flush().map_err(write_error)?;
    print::note(&format!("audit log written to {}", path.display()));
    Ok(Exit::Done)
}

/// Streams the lines of a response. A response that breaks off is an error.
pub(super) fn lines(
    gateway: &Gateway,
    response: Response,
) -> impl Stream<Item = Result<String, Error>> + Unpin + '_ {
    let begin = (response, BytesMut::new());
    Box::pin(stream::try_unfold(begin, move |(mut response, mut read)| async move {
        loop {
            if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line = read.split_to(end + 1);
                let line = String::from_utf8_lossy(&line[..end]).trim_end_matches('\r').to_owned();
                return Ok(Some((line, (response, read))));
            }
            match response.chunk().await.map_err(|error| gateway.unreachable(error))? {
                Some(chunk) => read.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }))
}

fn columns(row: &Row) -> Vec<String> {
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), print::sanitize);
    let took = Duration::from_micros(u64::try_from(row.duration_us).unwrap_or_default());
    vec![
        row.seq.to_string(),
        timestamp(row.created_at),
        print::sanitize(&row.agent),
        text(&row.user_id),
        text(&row.task_id),
        print::sanitize(&row.tool),
        print::sanitize(&row.decision),
        print::sanitize(&row.status),
        text(&row.error_type),
        format!("{took:?}"),
    ]
}

/// Formats microseconds since 1970 as RFC 3339.
fn timestamp(micros: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000);
    let text = at.ok().and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok());
    text.unwrap_or_else(|| micros.to_string())
}
