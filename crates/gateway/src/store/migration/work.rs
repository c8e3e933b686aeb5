use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) fn tables() -> Vec<TableCreateStatement> {
    vec![
        table("project", &["id"], vec![string("id"), string("name"), string("title"), text("description"), string_null("user_id"), big_integer("created_at"), big_integer("updated_at")]),
        table("task", &["id"], vec![string("id"), string("name"), string("title"), text("description"), text("acceptance_criteria"), string("status"), string_null("project_id"), string("scope_key"), string_null("user_id"), string_null("parent_task_id"), string_null("schedule_id"), string_null("run_id"), big_integer("position"), big_integer("version"), big_integer("created_at"), big_integer("updated_at")]),
        table("task_dependency", &["task_id", "depends_on"], vec![string("task_id"), string("depends_on"), big_integer("created_at")]),
        table("job", &["id"], vec![string("id"), string("task_id"), string("kind"), string("status"), text("payload"), text_null("result"), string_null("node_id"), string_null("run_id"), big_integer("version"), big_integer("created_at"), big_integer("updated_at")]),
        table("preference", &["id"], vec![string("id"), string("scope_type"), string("scope_id"), string("key"), text("value"), string("value_type"), big_integer("version"), boolean("deleted"), big_integer("updated_at"), string("updated_by")]),
        table("preference_history", &["preference_id", "version"], vec![string("preference_id"), big_integer("version"), text("value"), string("value_type"), string("change"), text_null("reason"), big_integer("updated_at"), string("updated_by")]),
        table("system_setting", &["key"], vec![string("key"), text("value"), string("value_type"), big_integer("version"), big_integer("updated_at"), string("updated_by")]),
        table("finding", &["id"], vec![string("id"), string("task_id"), string_null("run_id"), text("criterion"), string("verdict"), string("severity"), text("evidence"), text_null("location"), big_integer("created_at"), string("created_by")]),
        table("artifact", &["id"], vec![string("id"), string("task_id"), string_null("run_id"), string("path"), string("media_type"), big_integer("size"), string("sha256"), blob("content"), big_integer("version"), big_integer("created_at"), big_integer("updated_at")]),
        table("skill", &["id"], vec![string("id"), string("name"), string("scope_type"), string("scope_id"), text("description"), text("content"), boolean("read_only"), big_integer("version"), big_integer("created_at"), big_integer("updated_at"), string("updated_by")]),
        table("persona", &["id"], vec![string("id"), string("name"), text("description"), text("content"), big_integer("updated_at")]),
        table("node", &["id"], vec![string("id"), string("name"), string("status"), text("capabilities"), big_integer("seen_at")]),
        table("model", &["id"], vec![string("id"), string("name"), string("provider"), text("capabilities"), big_integer("context_tokens"), big_integer("updated_at")]),
        table("allowed_image", &["image"], vec![string("image"), text("note"), big_integer("created_at"), string("created_by")]),
    ]
}

pub(super) const INDEXES: &[Index] = &[
    Index::unique("project", &["name"]),
    Index::unique("task", &["scope_key", "name"]),
    Index::plain("task", &["project_id", "position"]),
    Index::plain("task", &["user_id"]),
    Index::plain("task_dependency", &["depends_on"]),
    Index::plain("job", &["task_id"]),
    Index::unique("preference", &["scope_type", "scope_id", "key"]),
    Index::plain("finding", &["task_id"]),
    Index::unique("artifact", &["task_id", "path"]),
    Index::unique("skill", &["scope_type", "scope_id", "name"]),
    Index::unique("persona", &["name"]),
    Index::unique("node", &["name"]),
    Index::unique("model", &["name"]),
];
