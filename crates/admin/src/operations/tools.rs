//! Tools as administrators and users see and set them, built-in and upstream, served or not.

mod view;

use api::{Tool, ToolChange, ToolDetails, ToolEffectChange, ToolOrigin, ToolState};
use sea_orm::{EntityTrait, sea_query::OnConflict};
use serde_json::json;

use registry::catalogue;
use store::{
    clock,
    entity::{tool_setting, upstream_tool},
};

use crate::{Actor, Admin, Error};

/// Stored in place of a scope: the tool keeps the scope of its definition or of its server.
const DEFAULT_SCOPE: &str = "";

impl Admin {
    /// Lists tools by name. Users see only the tools of servers that they own.
    pub(crate) async fn list_tools(&self, actor: &Actor) -> Result<Vec<Tool>, Error> {
        Ok(self.visible_tools(actor).await?.into_iter().map(|details| details.tool).collect())
    }

    pub(crate) async fn get_tool(&self, actor: &Actor, name: &str) -> Result<ToolDetails, Error> {
        let tools = self.visible_tools(actor).await?;
        let found = tools.into_iter().find(|details| details.tool.name == name);
        found.ok_or_else(|| Error::not_found("tool", name))
    }

    /// Changes a tool. The change applies from the next call on.
    ///
    /// Users may not change effects, nor a tool whose name another owner's tool shares, since settings are
    /// kept by name.
    pub(crate) async fn set_tool(
        &self,
        actor: &Actor,
        name: &str,
        change: ToolChange,
    ) -> Result<Tool, Error> {
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

/// Reads the state column of a tool. An unknown value counts as quarantined, so that the tool is not served.
pub(super) fn tool_state(column: &str) -> ToolState {
    match column {
        upstream_tool::APPROVED => ToolState::Approved,
        upstream_tool::GONE => ToolState::Gone,
        _ => ToolState::Quarantined,
    }
}
