mod told; // from what is known to what is said

use sea_orm::{EntityTrait, sea_query::OnConflict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    admin::{Actor, Admin, Error},
    catalogue, clock,
    policy::Scope,
    store::entity::{tool_setting, upstream_tool},
};

/// In place of a scope in the store: whatever the tool, or its server, came with.
const AS_IT_CAME: &str = "";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// It runs in the gateway.
    Own,
    /// Its server stands under one of the families of names that mean something here.
    Family,
    /// Its server has a name of its own.
    Installed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolDoes {
    Read,
    /// It may have an effect.
    Write,
}

/// Who says what a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolDoesBy {
    /// It runs in the gateway.
    Gateway,
    /// An administrator set it.
    Administrator,
    /// Its server's hint, in the copy that was approved.
    Server,
    /// It is of a user's server, whose hint counts for nothing.
    Default,
}

/// What an administrator says about the effects of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoesChange {
    Read,
    Write,
    /// As its server says, or `write` where that does not count.
    AsOffered,
}

impl std::str::FromStr for DoesChange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            "as_offered" => Ok(Self::AsOffered),
            _ => Err(Error::invalid("does", "must be read, write or as_offered")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Served, unless it is switched off.
    Approved,
    /// Waits for somebody to look at it.
    Quarantined,
    /// Its server does not offer it any more.
    Gone,
}

/// A system setting that has to be on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolGate {
    pub setting: String,
    pub open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub origin: ToolOrigin,
    /// Of the server behind us that has it.
    pub namespace: Option<String>,
    /// Its name over there.
    pub remote: Option<String>,
    /// The user who installed its server, if it was not an administrator.
    pub owner: Option<String>,
    pub enabled: bool,
    pub scope: Scope,
    pub does: ToolDoes,
    pub does_by: ToolDoesBy,
    /// Calling it twice does no harm.
    pub safe_to_repeat: bool,
    pub state: ToolState,
    pub gate: Option<ToolGate>,
    /// The ids that every call must name.
    pub needs: Vec<String>,
}

/// A tool with what it takes and gives.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolDetails {
    #[serde(flatten)]
    pub tool: Tool,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
}

/// What to change; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolChange {
    pub enabled: Option<bool>,
    pub scope: Option<Scope>,
    /// For administrators.
    pub safe_to_repeat: Option<bool>,
    /// Whether it only reads. For administrators, and for tools of servers behind the gateway.
    pub does: Option<DoesChange>,
}

impl Admin {
    /// By name. Users see the tools of servers that they installed.
    pub async fn list_tools(&self, actor: &Actor) -> Result<Vec<Tool>, Error> {
        Ok(self.known(actor).await?.into_iter().map(|details| details.tool).collect())
    }

    pub async fn get_tool(&self, actor: &Actor, name: &str) -> Result<ToolDetails, Error> {
        let known = self.known(actor).await?;
        let found = known.into_iter().find(|details| details.tool.name == name);
        found.ok_or_else(|| Error::not_found("tool", name))
    }

    /// Counts from the next call on.
    pub async fn set_tool(&self, actor: &Actor, name: &str, change: ToolChange) -> Result<Tool, Error> {
        const WHAT: &str = "admin.tool.set";
        let now = self.get_tool(actor, name).await?.tool;
        if change.does.is_some() && now.origin == ToolOrigin::Own {
            return Err(Error::invalid("does", "is part of the gateway's own tools; it cannot be set"));
        }
        if !actor.is_admin() {
            if change.does.is_some() {
                let why = "only an administrator says whether a tool only reads";
                return Err(self.refuse(actor, WHAT, why).await);
            }
            if change.safe_to_repeat.is_some() {
                let why = "only an administrator says whether a tool may be called twice";
                return Err(self.refuse(actor, WHAT, why).await);
            }
            if self.is_shared(actor, name).await? {
                let why = "another server has a tool of this name; ask an administrator";
                return Err(self.refuse(actor, WHAT, why).await);
            }
        }
        let about = json!({ "name": name, "change": change });
        let open = self.begin(actor, WHAT, &about).await?;
        let before = tool_setting::Entity::find_by_id(name).one(&*open.write).await?;
        let scope = change.scope.map(|scope| scope.as_str().to_owned());
        let row = tool_setting::Model {
            name: name.to_owned(),
            enabled: change.enabled.unwrap_or_else(|| before.as_ref().is_none_or(|before| before.enabled)),
            scope: scope
                .or_else(|| before.as_ref().map(|before| before.scope.clone()))
                .unwrap_or_else(|| AS_IT_CAME.to_owned()),
            safe_to_repeat: change
                .safe_to_repeat
                .unwrap_or_else(|| before.as_ref().is_some_and(|before| before.safe_to_repeat)),
            does: match change.does {
                None => before.and_then(|before| before.does),
                Some(DoesChange::Read) => Some(tool_setting::READ.to_owned()),
                Some(DoesChange::Write) => Some(tool_setting::WRITE.to_owned()),
                Some(DoesChange::AsOffered) => None,
            },
            updated_at: clock::now(),
            updated_by: actor.author(),
        };
        let changed = [
            tool_setting::Column::Enabled,
            tool_setting::Column::Scope,
            tool_setting::Column::SafeToRepeat,
            tool_setting::Column::Does,
            tool_setting::Column::UpdatedAt,
            tool_setting::Column::UpdatedBy,
        ];
        tool_setting::Entity::insert(tool_setting::ActiveModel::from(row))
            .on_conflict(OnConflict::column(tool_setting::Column::Name).update_columns(changed).to_owned())
            .exec_without_returning(&*open.write)
            .await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        Ok(self.get_tool(actor, name).await?.tool)
    }

    /// Whether somebody else's tool goes by the same name, so that what is said about one is said about both.
    async fn is_shared(&self, actor: &Actor, name: &str) -> Result<bool, Error> {
        let everything = self.everything().await?;
        let mut others = everything.iter().filter(|details| details.tool.name == name);
        Ok(others.any(|details| !actor.may_manage(details.tool.owner.as_deref())))
    }

    async fn known(&self, actor: &Actor) -> Result<Vec<ToolDetails>, Error> {
        let mut known = self.everything().await?;
        known.retain(|details| actor.may_manage(details.tool.owner.as_deref()));
        Ok(known)
    }

    /// What is served and what is not, by name; of those that share a name, the one that is served first.
    async fn everything(&self) -> Result<Vec<ToolDetails>, Error> {
        let db = self.store.read();
        let catalogue = self.calls.shelf.fresh(&self.store).await?;
        let mut found: Vec<ToolDetails> = catalogue.all().filter_map(told::own).collect();
        let settings = tool_setting::Entity::find().all(db).await?;
        let servers = self.servers().await?;
        for row in upstream_tool::Entity::find().all(db).await? {
            let Some(server) = servers.get(&row.namespace) else { continue };
            let setting = settings.iter().find(|setting| setting.name == row.name);
            let served = catalogue.get(&row.name).map(|served| &served.policy);
            found.push(told::behind(row, server, setting, served));
        }
        let waits = |details: &ToolDetails| details.tool.state != ToolState::Approved;
        found.sort_by(|a, b| (&a.tool.name, waits(a)).cmp(&(&b.tool.name, waits(b))));
        Ok(found)
    }
}

/// What cannot be read is not served.
pub(super) fn state(text: &str) -> ToolState {
    match text {
        upstream_tool::APPROVED => ToolState::Approved,
        upstream_tool::GONE => ToolState::Gone,
        _ => ToolState::Quarantined,
    }
}
