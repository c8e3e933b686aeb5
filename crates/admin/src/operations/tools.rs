//! Tools as administrators and users see and set them, built-in and upstream, served or not.

mod view;

use policy::Scope;
use sea_orm::{EntityTrait, sea_query::OnConflict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use registry::catalogue;
use store::{
    clock,
    entity::{tool_setting, upstream_tool},
};

use crate::{Actor, Admin, Error};

/// Stored in place of a scope: the tool keeps the scope of its definition or of its server.
const DEFAULT_SCOPE: &str = "";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// Built into the gateway.
    #[serde(rename = "own")]
    BuiltIn,
    /// Its server is registered under a reserved namespace.
    Family,
    /// Its server is registered under any other namespace.
    Installed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ToolDoes)]
pub enum ToolEffect {
    Read,
    /// May have effects.
    Write,
}

/// Where the effect of a tool is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ToolDoesBy)]
pub enum ToolEffectSource {
    /// Built into the gateway.
    Gateway,
    /// Set by an administrator.
    Administrator,
    /// The hint of the server, from the approved version.
    Server,
    /// The default for servers of users, whose hints are not trusted.
    Default,
}

/// The effect that an administrator sets for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DoesChange)]
pub enum ToolEffectChange {
    Read,
    Write,
    /// By the hint of the server; `write` if the hint is not trusted.
    AsOffered,
}

impl std::str::FromStr for ToolEffectChange {
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
    /// Served, unless it is disabled.
    Approved,
    /// Needs approval.
    Quarantined,
    /// No longer offered by its server.
    Gone,
}

/// A system setting that must be on for the tool to be callable.
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
    /// Namespace of its server; `null` for built-in tools.
    pub namespace: Option<String>,
    /// Its name at the server.
    pub remote: Option<String>,
    /// The user who owns its server.
    pub owner: Option<String>,
    pub enabled: bool,
    pub scope: Scope,
    pub does: ToolEffect,
    pub does_by: ToolEffectSource,
    /// Whether a call can be repeated safely.
    pub safe_to_repeat: bool,
    pub state: ToolState,
    pub gate: Option<ToolGate>,
    /// Ids that every call must contain.
    pub needs: Vec<String>,
}

/// A tool with its input and output schema.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolDetails {
    #[serde(flatten)]
    pub tool: Tool,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
}

/// The fields to change; omitted fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolChange {
    pub enabled: Option<bool>,
    pub scope: Option<Scope>,
    /// Administrators only.
    pub safe_to_repeat: Option<bool>,
    /// Whether it only reads. Administrators only, and only for tools of upstream servers.
    pub does: Option<ToolEffectChange>,
}

impl Admin {
    /// Lists tools by name. Users see only the tools of servers that they own.
    pub async fn list_tools(&self, actor: &Actor) -> Result<Vec<Tool>, Error> {
        Ok(self.visible_tools(actor).await?.into_iter().map(|details| details.tool).collect())
    }

    pub async fn get_tool(&self, actor: &Actor, name: &str) -> Result<ToolDetails, Error> {
        let tools = self.visible_tools(actor).await?;
        let found = tools.into_iter().find(|details| details.tool.name == name);
        found.ok_or_else(|| Error::not_found("tool", name))
    }

    /// Changes a tool. The change applies from the next call on.
    ///
    /// Users may not change effects, nor a tool whose name another owner's tool shares, since settings are
    /// kept by name.
    pub async fn set_tool(&self, actor: &Actor, name: &str, change: ToolChange) -> Result<Tool, Error> {
        const WHAT: &str = "admin.tool.set";
        let now = self.get_tool(actor, name).await?.tool;
        if change.does.is_some() && now.origin == ToolOrigin::BuiltIn {
            return Err(Error::invalid("does", "cannot be set for built-in tools"));
        }
        if !actor.is_admin() {
            if change.does.is_some() {
                let why = "only an administrator may set whether a tool only reads";
                return Err(self.refuse(actor, WHAT, why).await);
            }
            if change.safe_to_repeat.is_some() {
                let why = "only an administrator may set whether a tool is safe to repeat";
                return Err(self.refuse(actor, WHAT, why).await);
            }
            if self.query_name_conflict(actor, name).await? {
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
                .unwrap_or_else(|| DEFAULT_SCOPE.to_owned()),
            safe_to_repeat: change
                .safe_to_repeat
                .unwrap_or_else(|| before.as_ref().is_some_and(|before| before.safe_to_repeat)),
            does: match change.does {
                None => before.and_then(|before| before.does),
                Some(ToolEffectChange::Read) => Some(tool_setting::READ.to_owned()),
                Some(ToolEffectChange::Write) => Some(tool_setting::WRITE.to_owned()),
                Some(ToolEffectChange::AsOffered) => None,
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
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        Ok(self.get_tool(actor, name).await?.tool)
    }

    /// Returns whether a tool of another owner has this name, so that a setting would affect both.
    async fn query_name_conflict(&self, actor: &Actor, name: &str) -> Result<bool, Error> {
        let all = self.all_tools().await?;
        let mut others = all.iter().filter(|details| details.tool.name == name);
        Ok(others.any(|details| !actor.may_manage(details.tool.owner.as_deref())))
    }

    /// Returns the tools that the actor may manage.
    async fn visible_tools(&self, actor: &Actor) -> Result<Vec<ToolDetails>, Error> {
        let mut tools = self.all_tools().await?;
        tools.retain(|details| actor.may_manage(details.tool.owner.as_deref()));
        Ok(tools)
    }

    /// Returns all tools by name, served or not; of those with the same name, the served one first.
    async fn all_tools(&self) -> Result<Vec<ToolDetails>, Error> {
        let db = self.store.read();
        let catalogue = self.catalogue.latest(&self.store).await?;
        let mut found: Vec<ToolDetails> = catalogue.all().filter_map(view::built_in).collect();
        let settings = tool_setting::Entity::find().all(db).await?;
        let servers = self.load_servers().await?;
        for row in upstream_tool::Entity::find().all(db).await? {
            let Some(server) = servers.get(&row.namespace) else { continue };
            let setting = settings.iter().find(|setting| setting.name == row.name);
            let served = catalogue.get(&row.name).map(|served| &served.policy);
            found.push(view::from_row(row, server, setting, served));
        }
        let unapproved = |details: &ToolDetails| details.tool.state != ToolState::Approved;
        found.sort_by(|a, b| (&a.tool.name, unapproved(a)).cmp(&(&b.tool.name, unapproved(b))));
        Ok(found)
    }
}

impl ToolState {
    /// Reads the state column. An unknown value counts as quarantined, so that the tool is not served.
    pub(super) fn from_column(text: &str) -> Self {
        match text {
            upstream_tool::APPROVED => Self::Approved,
            upstream_tool::GONE => Self::Gone,
            _ => Self::Quarantined,
        }
    }
}
