//! REST handlers of the audit: query, live tail, export, heads, verification.

use std::{convert::Infallible, io};

use api::{AuditVerification, Heads, NodeAudit};
use axum::{
    Json,
    body::Body,
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
    JsonResult,
    document::{AuditHeads, AuditRow},
    extract::{Authenticated, Query},
    refusal::{Refusal, Refusals},
};
use audit::Filter;

const NDJSON: &str = "application/x-ndjson";
/// Rows of an export that are sent in one chunk.
const ROWS_PER_CHUNK: usize = 128;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TailStart {
    /// Begin after this row; default: only new rows.
    after: Option<i64>,
}

/// Query audit rows, newest first
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "audit", operation_id = "audit_query",
    params(Filter),
    responses((status = 200, description = "OK", body = [AuditRow]), Refusals),
)]
pub(super) async fn query(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<Filter>,
) -> JsonResult<Vec<Row>> {
    Ok(Json(admin.query_audit(&actor, &filter).await?))
}

/// Stream new rows as server-sent events
#[utoipa::path(
    get, path = "/api/v1/audit/tail", tag = "audit", operation_id = "audit_tail",
    params(TailStart),
    responses(
        (status = 200, description = "OK", body = AuditRow, content_type = "text/event-stream"),
        Refusals,
    ),
)]
pub(super) async fn tail(
    Authenticated(admin, actor): Authenticated,
    Query(from): Query<TailStart>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    // A client that reconnects names the last event that it received.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let rows = admin.tail_audit(&actor, last.or(from.after)).await?;
    let events = rows.map(|row| {
        let event = Event::default().id(row.seq.to_string());
        // A row of strings and numbers always serializes.
        Ok(event.json_data(&row).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Export the whole chain as one line of JSON per row; the first line tells where the chain begins
#[utoipa::path(
    get, path = "/api/v1/audit/export", tag = "audit", operation_id = "audit_export",
    responses(
        (status = 200, description = "OK", body = String, content_type = "application/x-ndjson"),
        Refusals,
    ),
)]
pub(super) async fn export(Authenticated(admin, actor): Authenticated) -> Result<Response, Refusal> {
    let (pruned, rows) = admin.export_audit(&actor).await?;
    let first = stream::once(async move { line(&pruned) });
    let pieces = rows.ready_chunks(ROWS_PER_CHUNK).map(|rows| {
        let mut piece = Vec::new();
        for row in rows {
            // The status is already sent: an error aborts the body, so a client does not take it for
            // complete.
            piece.extend(line(&row.map_err(io::Error::other)?)?);
        }
        Ok(Bytes::from(piece))
    });
    let body = Body::from_stream(first.chain(pieces));
    Ok(([(CONTENT_TYPE, NDJSON)], body).into_response())
}

/// Get the signed heads from the gateway's file
#[utoipa::path(
    get, path = "/api/v1/audit/heads", tag = "audit", operation_id = "audit_heads",
    responses((status = 200, description = "OK", body = AuditHeads), Refusals),
)]
pub(super) async fn heads(Authenticated(admin, actor): Authenticated) -> JsonResult<Heads> {
    Ok(Json(admin.audit_heads(&actor).await?))
}

/// Verify the chain against the signed heads of the gateway's file
#[utoipa::path(
    get, path = "/api/v1/audit/verify", tag = "audit", operation_id = "audit_verify",
    responses((status = 200, description = "OK", body = AuditVerification), Refusals),
)]
pub(super) async fn verify(Authenticated(admin, actor): Authenticated) -> JsonResult<AuditVerification> {
    Ok(Json(admin.verify_audit(&actor).await?))
}

/// Get the leases of nodes, how far their audit was taken over, and what is wrong with it
#[utoipa::path(
    get, path = "/api/v1/audit/nodes", tag = "audit", operation_id = "audit_nodes",
    responses((status = 200, description = "OK", body = NodeAudit), Refusals),
)]
pub(super) async fn nodes(Authenticated(admin, actor): Authenticated) -> JsonResult<NodeAudit> {
    Ok(Json(admin.node_audit(&actor).await?))
}

fn line(value: &impl Serialize) -> io::Result<Bytes> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line.into())
}
