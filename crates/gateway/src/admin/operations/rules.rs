use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    admin::{Actor, Admin, Error, change::Change, check},
    catalogue, clock,
    policy::{AgentKind, Effect},
    store::entity::access_rule,
};

const LONGEST: usize = 512;
const MOST: usize = 1000;

/// A rule about who may call what with which arguments. The first that applies decides. A rule never permits what a
/// tool's settings or the list of its role deny.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AccessRule {
    pub id: String,
    /// Counts from one.
    pub position: i64,
    /// allow or deny; a rule that cannot be read denies.
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
    /// All agents when not given.
    #[serde(default)]
    pub agent: Option<AgentKind>,
    /// Only agents that act for this user.
    #[serde(default)]
    pub user_id: Option<String>,
    /// A tool, or the beginning of names followed by `*`.
    pub tool: String,
    /// An argument of the call as a JSON pointer, such as `/url`.
    #[serde(default)]
    pub argument: Option<String>,
    /// What that argument looks like; `*` stands for any run of characters.
    #[serde(default)]
    pub matches: Option<String>,
    /// Why there is this rule.
    #[serde(default)]
    pub note: String,
    /// Where to put it, counting from one; at the end when not given.
    #[serde(default)]
    pub position: Option<usize>,
}

impl Admin {
    /// In the order in which they are asked.
    pub async fn list_rules(&self, actor: &Actor) -> Result<Vec<AccessRule>, Error> {
        actor.sees_everything()?;
        let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position);
        Ok(rows.all(self.store.read()).await?.into_iter().map(told).collect())
    }

    /// Counts from the next call on.
    pub async fn add_rule(&self, actor: &Actor, new: NewRule) -> Result<AccessRule, Error> {
        const WHAT: &str = "admin.rule.add";
        self.admin_only(actor, WHAT).await?;
        let row = made(actor, &new)?;
        let id = row.id.clone();
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        let mut order = order(&open).await?;
        if order.len() >= MOST {
            return Err(Error::Conflict(format!("there are {MOST} rules; that is as many as there may be")));
        }
        let at = new.position.map_or(order.len(), |position| position.saturating_sub(1).min(order.len()));
        order.insert(at, id.clone());
        access_rule::Entity::insert(access_rule::ActiveModel::from(row))
            .exec_without_returning(&*open.write)
            .await?;
        number(&open, &order).await?;
        let row = access_rule::Entity::find_by_id(&id).one(&*open.write).await?;
        let rule = row.map(told).ok_or_else(|| Error::not_found("rule", id))?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        Ok(rule)
    }

    pub async fn remove_rule(&self, actor: &Actor, id: &str) -> Result<(), Error> {
        const WHAT: &str = "admin.rule.remove";
        self.admin_only(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let gone = access_rule::Entity::delete_by_id(id).exec(&*open.write).await?;
        if gone.rows_affected == 0 {
            return Err(Error::not_found("rule", id));
        }
        let order = order(&open).await?;
        number(&open, &order).await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await
    }

    /// `ids` names every rule once, in the order in which they are to be asked.
    pub async fn reorder_rules(&self, actor: &Actor, ids: Vec<String>) -> Result<Vec<AccessRule>, Error> {
        const WHAT: &str = "admin.rule.reorder";
        self.admin_only(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "ids": ids })).await?;
        let (mut there, mut named) = (order(&open).await?, ids.clone());
        there.sort();
        named.sort();
        if there != named {
            let why = "the order must name every rule once; the rules may have changed, look again";
            return Err(Error::Conflict(why.to_owned()));
        }
        number(&open, &ids).await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        self.list_rules(actor).await
    }
}

fn made(actor: &Actor, new: &NewRule) -> Result<access_rule::Model, Error> {
    let text = |field: &'static str, text: &Option<String>| {
        let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        match text {
            Some(text) if text.len() > LONGEST => {
                Err(Error::invalid(field, format!("must have at most {LONGEST} bytes")))
            }
            text => Ok(text.map(str::to_owned)),
        }
    };
    let tool = check::id("tool", &new.tool)?;
    if tool.trim_end_matches('*').contains('*') || tool.ends_with("**") {
        return Err(Error::invalid("tool", "`*` may stand at the end alone, as in `db.*`"));
    }
    let user_id = check::optional_id("user_id", new.user_id.as_deref())?;
    if user_id.is_some() && new.agent == Some(AgentKind::ProjectManager) {
        let why = "a project manager acts for no user, so this rule would never apply";
        return Err(Error::invalid("user_id", why));
    }
    let (argument, matches) = (text("argument", &new.argument)?, text("matches", &new.matches)?);
    match (&argument, &matches) {
        (Some(_), None) => {
            return Err(Error::invalid("matches", "is needed: what should the argument look like?"));
        }
        (None, Some(_)) => {
            return Err(Error::invalid("argument", "is needed: which argument, as in `/url`?"));
        }
        (Some(argument), Some(_)) if !argument.starts_with('/') || argument.len() < 2 => {
            return Err(Error::invalid("argument", "is a JSON pointer and begins with `/`, as in `/url`"));
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

async fn order(open: &Change) -> Result<Vec<String>, Error> {
    let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position);
    Ok(rows.all(&*open.write).await?.into_iter().map(|row| row.id).collect())
}

async fn number(open: &Change, order: &[String]) -> Result<(), Error> {
    for (position, id) in (1_i64..).zip(order) {
        access_rule::Entity::update_many()
            .col_expr(access_rule::Column::Position, Expr::value(position))
            .filter(access_rule::Column::Id.eq(id))
            .exec(&*open.write)
            .await?;
    }
    Ok(())
}

fn told(row: access_rule::Model) -> AccessRule {
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
