use std::{convert::Infallible, io, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use subjects::audit::Row;
use utoipa::IntoParams;

use super::{
    document::{AuditHeads, AuditRow},
    extract::{By, Query},
    refusal::{Refusal, Refused},
};
use crate::{
    admin::{
        Admin,
        operations::{Heads, Verified},
    },
    audit::Filter,
};

const LINES: &str = "application/x-ndjson";
/// Rows that are sent in one piece.
const PIECE: usize = 128;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// Begin after this row; with what comes from now on when not given.
    after: Option<i64>,
}

/// Look rows up, newest first
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "audit", operation_id = "audit_query",
    params(Filter),
    responses((status = 200, description = "OK", body = [AuditRow]), Refused),
)]
pub(super) async fn query(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Query(filter): Query<Filter>,
) -> Result<Json<Vec<Row>>, Refusal> {
    Ok(Json(admin.query_audit(&actor, &filter).await?))
}

/// Watch rows as they come, as server-sent events
#[utoipa::path(
    get, path = "/api/v1/audit/tail", tag = "audit", operation_id = "audit_tail",
    params(From),
    responses((status = 200, description = "OK", body = AuditRow, content_type = "text/event-stream"), Refused),
)]
pub(super) async fn tail(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    // Whoever was cut off says what they saw last.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let rows = admin.tail_audit(&actor, last.or(from.after)).await?;
    let events = rows.map(|row| {
        let event = Event::default().id(row.seq.to_string());
        // Strings, numbers and nothing: these always become JSON.
        Ok(event.json_data(&row).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Export the whole chain, one line of JSON for each row; the first line tells where the chain begins
#[utoipa::path(
    get, path = "/api/v1/audit/export", tag = "audit", operation_id = "audit_export",
    responses((status = 200, description = "OK", body = String, content_type = "application/x-ndjson"), Refused),
)]
pub(super) async fn export(State(admin): State<Arc<Admin>>, By(actor): By) -> Result<Response, Refusal> {
    let (pruned, rows) = admin.export_audit(&actor).await?;
    let first = stream::once(async move { line(&pruned) });
    let pieces = rows.ready_chunks(PIECE).map(|rows| {
        let mut piece = Vec::new();
        for row in rows {
            // What was begun cannot be refused any more; cut off, it is not taken for the whole.
            piece.extend(line(&row.map_err(io::Error::other)?)?);
        }
        Ok(Bytes::from(piece))
    });
    let body = Body::from_stream(first.chain(pieces));
    Ok(([(CONTENT_TYPE, LINES)], body).into_response())
}

/// Get the signed heads that the gateway's file holds
#[utoipa::path(
    get, path = "/api/v1/audit/heads", tag = "audit", operation_id = "audit_heads",
    responses((status = 200, description = "OK", body = AuditHeads), Refused),
)]
pub(super) async fn heads(State(admin): State<Arc<Admin>>, By(actor): By) -> Result<Json<Heads>, Refusal> {
    Ok(Json(admin.audit_heads(&actor).await?))
}

/// Hold the chain against the heads of the gateway's file
#[utoipa::path(
    get, path = "/api/v1/audit/verify", tag = "audit", operation_id = "audit_verify",
    responses((status = 200, description = "OK", body = Verified), Refused),
)]
pub(super) async fn verify(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
) -> Result<Json<Verified>, Refusal> {
    Ok(Json(admin.verify_audit(&actor).await?))
}

fn line(value: &impl Serialize) -> io::Result<Bytes> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line.into())
}
