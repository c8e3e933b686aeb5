//! Access rules: list, add, remove, reorder.

use policy::{AgentKind, Effect};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use registry::catalogue;
use store::{clock, entity::access_rule};

use crate::{Actor, Admin, Error, change::Change, check};

const MAX_TEXT_BYTES: usize = 512;
const MAX_RULES: usize = 1000;

/// A rule that allows or denies calls by agent, user, tool and argument. The first rule that applies decides.
/// A rule never permits what the settings of a tool or the allowlist of a role deny.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AccessRule {
    pub id: String,
    /// Position in the order of evaluation, counted from 1.
    pub position: i64,
    /// allow or deny; a rule that is unreadable denies.
    pub effect: String,
    pub agent: Option<String>,
    pub user_id: Option<String>,
    pub tool: String,
    pub argument: Option<String>,
    pub matches: Option<String>,
    pub note: String,
    pub created_at: String,
    pub created_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    pub effect: Effect,
    /// Default: all agents.
    #[serde(default)]
    pub agent: Option<AgentKind>,
    /// Applies only to agents that act for this user.
    #[serde(default)]
    pub user_id: Option<String>,
    /// Name of a tool, or a prefix followed by `*`.
    pub tool: String,
    /// JSON pointer to an argument of the call, such as `/url`.
    #[serde(default)]
    pub argument: Option<String>,
    /// Pattern for that argument; `*` matches any characters.
    #[serde(default)]
    pub matches: Option<String>,
    /// The reason for the rule.
    #[serde(default)]
    pub note: String,
    /// Position in the order of evaluation, counted from 1. Default: at the end.
    #[serde(default)]
    pub position: Option<usize>,
}

impl Admin {
    /// Lists rules in the order of evaluation.
    pub async fn list_rules(&self, actor: &Actor) -> Result<Vec<AccessRule>, Error> {
        actor.ensure_admin()?;
        let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position);
        Ok(rows.all(self.store.read()).await?.into_iter().map(AccessRule::from).collect())
    }

    /// Adds a rule. It applies from the next call on.
    pub async fn add_rule(&self, actor: &Actor, new: NewRule) -> Result<AccessRule, Error> {
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
        let rule = row.map(AccessRule::from).ok_or_else(|| Error::not_found("rule", id))?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        Ok(rule)
    }

    pub async fn remove_rule(&self, actor: &Actor, id: &str) -> Result<(), Error> {
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
    pub async fn reorder_rules(&self, actor: &Actor, ids: Vec<String>) -> Result<Vec<AccessRule>, Error> {
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
    if user_id.is_some() && new.agent == Some(AgentKind::ProjectManager) {
        let why = "a project manager acts for no user, so this rule would never apply";
        return Err(Error::invalid("user_id", why));
    }
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

impl From<access_rule::Model> for AccessRule {
    fn from(row: access_rule::Model) -> Self {
        Self {
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
}
