//! Access rules: list, add, remove, reorder.

use api::{AccessRule, NewRule};
use policy::Effect;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};
use serde_json::json;
use uuid::Uuid;

use registry::catalogue;
use store::{clock, entity::access_rule};

use crate::{Actor, Admin, Error, change::Change, check};

const MAX_TEXT_BYTES: usize = 512;
const MAX_RULES: usize = 1000;

impl Admin {
    /// Lists rules in the order of evaluation.
    pub(crate) async fn list_rules(&self, actor: &Actor) -> Result<Vec<AccessRule>, Error> {
        actor.ensure_admin()?;
        let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position);
        Ok(rows.all(self.store.read()).await?.into_iter().map(body).collect())
    }

    /// Adds a rule. It applies from the next call on.
    pub(crate) async fn add_rule(&self, actor: &Actor, new: NewRule) -> Result<AccessRule, Error> {
        const WHAT: &str = "admin.rule.add";
        self.require_admin(actor, WHAT).await?;
        let row = build_row(actor, &new)?;
        let id = row.id.clone();
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        let mut order = load_order(&open).await?;
        if order.len() >= MAX_RULES {
            return Err(Error::Conflict(format!("there are already {MAX_RULES} rules, the maximum")));
        }
        let at = new.position.map_or(order.len(), |position| position.saturating_sub(1).min(order.len()));
        order.insert(at, id.clone());
        access_rule::Entity::insert(access_rule::ActiveModel::from(row))
            .exec_without_returning(&*open.write)
            .await?;
        renumber(&open, &order).await?;
        let row = access_rule::Entity::find_by_id(&id).one(&*open.write).await?;
        let rule = row.map(body).ok_or_else(|| Error::not_found("rule", id))?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        Ok(rule)
    }

    pub(crate) async fn remove_rule(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        const WHAT: &str = "admin.rule.remove";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let deleted = access_rule::Entity::delete_by_id(id).exec(&*open.write).await?;
        if deleted.rows_affected == 0 {
            return Err(Error::not_found("rule", id));
        }
        let order = load_order(&open).await?;
        renumber(&open, &order).await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await
    }

    /// Sets the order of evaluation. `ids` must contain every rule once; otherwise fails with
    /// [`Error::Conflict`].
    pub(crate) async fn reorder_rules(
        &self,
        actor: &Actor,
        ids: Vec<String>,
    ) -> Result<Vec<AccessRule>, Error> {
        const WHAT: &str = "admin.rule.reorder";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "ids": ids })).await?;
        let (mut existing, mut named) = (load_order(&open).await?, ids.clone());
        existing.sort();
        named.sort();
        if existing != named {
            let why = "the order must contain every rule once; the rules may have changed, reload them";
            return Err(Error::Conflict(why.to_owned()));
        }
        renumber(&open, &ids).await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        self.list_rules(actor).await
    }
}

/// Validates a new rule and returns its row. The position is set later.
fn build_row(actor: &Actor, new: &NewRule) -> Result<access_rule::Model, Error> {
    let text = |field: &'static str, text: &Option<String>| {
        let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        match text {
            Some(text) if text.len() > MAX_TEXT_BYTES => {
                Err(Error::invalid(field, format!("must have at most {MAX_TEXT_BYTES} bytes")))
            }
            text => Ok(text.map(str::to_owned)),
        }
    };
    let tool = check::id("tool", &new.tool)?;
    if tool.trim_end_matches('*').contains('*') || tool.ends_with("**") {
        return Err(Error::invalid("tool", "`*` is allowed only at the end, as in `db.*`"));
    }
    let user_id = check::optional_id("user_id", new.user_id.as_deref())?;
    let (argument, matches) = (text("argument", &new.argument)?, text("matches", &new.matches)?);
    match (&argument, &matches) {
        (Some(_), None) => {
            return Err(Error::invalid("matches", "is required when an argument is given"));
        }
        (None, Some(_)) => {
            return Err(Error::invalid(
                "argument",
                "is required when a pattern is given, for example `/url`",
            ));
        }
        (Some(argument), Some(_)) if !argument.starts_with('/') || argument.len() < 2 => {
            return Err(Error::invalid("argument", "must be a JSON pointer such as `/url`"));
        }
        _ => {}
    }
    let note = if new.note.trim().is_empty() { String::new() } else { check::line("note", &new.note)? };
    Ok(access_rule::Model {
        id: Uuid::now_v7().to_string(),
        position: 0,
        effect: match new.effect {
            Effect::Allow => "allow".to_owned(),
            Effect::Deny => "deny".to_owned(),
        },
        agent: new.agent.map(|agent| agent.to_string()),
        user_id,
        tool,
        argument,
        matches,
        note,
        created_at: clock::now(),
        created_by: actor.author(),
    })
}

/// Returns the ids of all rules in the order of evaluation.
async fn load_order(open: &Change) -> Result<Vec<String>, Error> {
    let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position);
    Ok(rows.all(&*open.write).await?.into_iter().map(|row| row.id).collect())
}

/// Stores the positions 1, 2, … in this order.
async fn renumber(open: &Change, order: &[String]) -> Result<(), Error> {
    for (position, id) in (1_i64..).zip(order) {
        access_rule::Entity::update_many()
            .col_expr(access_rule::Column::Position, Expr::value(position))
            .filter(access_rule::Column::Id.eq(id))
            .exec(&*open.write)
            .await?;
    }
    Ok(())
}

fn body(row: access_rule::Model) -> AccessRule {
    AccessRule {
        id: row.id,
        position: row.position,
        effect: row.effect,
        agent: row.agent,
        user_id: row.user_id,
        tool: row.tool,
        argument: row.argument,
        matches: row.matches,
        note: row.note,
        created_at: clock::text(row.created_at),
        created_by: row.created_by,
    }
}
