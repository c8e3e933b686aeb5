//! Tables of the initial schema that access decisions depend on: tokens, tool settings, access rules.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) fn tables() -> Vec<TableCreateStatement> {
    vec![
        table(
            "token",
            &["id"],
            vec![
                string("id"),
                string("hash"),
                string("label"),
                string("agent"),
                string_null("user_id"),
                string_null("task_id"),
                big_integer("created_at"),
                string("created_by"),
                big_integer("expires_at"),
                big_integer_null("revoked_at"),
            ],
        ),
        table(
            "login",
            &["hash"],
            vec![
                string("hash"),
                string("token_id"),
                string("csrf"),
                big_integer("created_at"),
                big_integer("expires_at"),
            ],
        ),
        table(
            "tool_setting",
            &["name"],
            vec![
                string("name"),
                boolean("enabled"),
                string("scope"),
                boolean("safe_to_repeat"),
                big_integer("updated_at"),
                string("updated_by"),
            ],
        ),
        table(
            "access_rule",
            &["id"],
            vec![
                string("id"),
                big_integer("position"),
                string("effect"),
                string_null("agent"),
                string_null("user_id"),
                string("tool"),
                string_null("argument"),
                string_null("matches"),
                string("note"),
                big_integer("created_at"),
                string("created_by"),
            ],
        ),
        table("revision", &["id"], vec![integer("id"), big_integer("value")]),
    ]
}

pub(super) const INDEXES: &[Index] =
    &[Index::unique("token", &["hash"]), Index::plain("login", &["expires_at"])];
