//! A lease that is bound to a node, and how far the node's audit of it has come.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "edge_lease")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub lease_id: String,
    /// The lease of the job, under which this one was issued.
    pub parent_id: String,
    pub node: String,
    /// The public nkey of the node.
    pub holder: String,
    /// The token with which the node bound it.
    pub token: String,
    pub agent: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    /// The memory profile of the lease.
    pub profile: Option<String>,
    pub audit_quota: i64,
    pub bound_at: i64,
    /// As it was last renewed.
    pub expires_at: i64,
    /// The last line that was taken over, and its hash.
    pub lines: i64,
    pub head: String,
    /// The stream sequence of the last message that was taken over, and the digest of its body.
    pub stream_seq: i64,
    pub stream_digest: String,
    /// The last line of that message, and its hash. Behind `lines` while lines come again, after the stream
    /// was lost.
    pub stream_lines: i64,
    pub stream_head: String,
    /// The number of lines, and the hash of the last, that the node stated when it last renewed.
    pub stated_lines: i64,
    pub stated_head: String,
    /// JSON: calls that began and have not ended, by their line.
    #[sea_orm(column_type = "Text")]
    pub pending: String,
    pub closed_at: Option<i64>,
    pub close_reason: Option<String>,
}

super::plain_entity!();
