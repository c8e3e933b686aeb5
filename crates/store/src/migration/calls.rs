//! Tables of the initial schema for upstreams, the audit and calls in flight.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) fn tables() -> Vec<TableCreateStatement> {
    vec![
        table(
            "upstream",
            &["namespace"],
            vec![
                string("namespace"),
                string_null("owner"),
                text("transport"),
                boolean("prefix"),
                string("scope"),
                boolean("enabled"),
                big_integer("call_timeout_ms"),
                integer("concurrency"),
                big_integer("created_at"),
                string("created_by"),
            ],
        ),
        table(
            "upstream_tool",
            &["namespace", "remote"],
            vec![
                string("namespace"),
                string("remote"),
                string("name"),
                text_null("pinned"),
                string_null("pinned_hash"),
                text_null("offered"),
                string_null("offered_hash"),
                string("state"),
                string("reason"),
                string_null("decided_by"),
                big_integer("seen_at"),
            ],
        ),
        table(
            "audit",
            &["seq"],
            vec![
                big_integer("seq"),
                big_integer("created_at"),
                string("call_id"),
                string("agent"),
                string_null("subject"),
                string_null("user_id"),
                string_null("task_id"),
                string_null("project_id"),
                string_null("run_id"),
                string_null("job_id"),
                string("tool"),
                string("decision"),
                string("status"),
                string_null("error_type"),
                big_integer("duration_us"),
                string_null("arguments_digest"),
                string_null("trace_id"),
                string("hash"),
            ],
        ),
        table("audit_pruned", &["id"], vec![integer("id"), big_integer("seq"), string("hash")]),
        table("in_flight", &["call_id"], vec![string("call_id"), big_integer("expires_at"), text("record")]),
        table(
            "idempotency",
            &["holder", "key"],
            vec![
                string("holder"),
                string("key"),
                string("tool"),
                string("arguments_digest"),
                string("state"),
                text_null("result"),
                string("call_id"),
                big_integer("created_at"),
                big_integer("expires_at"),
            ],
        ),
    ]
}

/// The audit has few indexes on purpose: every call pays for each of them, and queries mostly read the newest
/// rows.
pub(super) const INDEXES: &[Index] = &[
    Index::plain("upstream_tool", &["name"]),
    Index::plain("audit", &["call_id"]),
    Index::plain("idempotency", &["expires_at"]),
];
