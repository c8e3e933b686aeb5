//! Registration of upstream servers: list, add, change, enable, remove.

use std::{collections::BTreeMap, time::Duration};

use api::{Health, NewUpstream, ToolCounts, ToolState, Transport, Upstream, UpstreamChange};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde_json::json;

use super::{namespaces, tool_state};
use policy::Scope;

use registry::{catalogue, upstreams::transport};
use store::{
    clock,
    entity::{tool_setting, upstream, upstream_tool},
};

use crate::{Actor, Admin, Error, check};

const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_CALL_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(600);
const DEFAULT_CONCURRENCY: u32 = 8;
const MAX_CONCURRENCY: u32 = 256;
/// Servers that one user may register.
const MAX_SERVERS_PER_USER: usize = 32;

impl Admin {
    /// Lists servers by namespace. Users see only the servers that they own.
    pub(crate) async fn list_upstreams(&self, actor: &Actor) -> Result<Vec<Upstream>, Error> {
        let mut counts: BTreeMap<String, ToolCounts> = BTreeMap::new();
        for row in upstream_tool::Entity::find().all(self.store.read()).await? {
            let counts = counts.entry(row.namespace).or_default();
            *match tool_state(&row.state) {
                ToolState::Approved => &mut counts.approved,
                ToolState::Quarantined => &mut counts.quarantined,
                ToolState::Gone => &mut counts.gone,
            } += 1;
        }
        let mut health = self.upstreams.health();
        let servers = self.load_servers().await?.into_values();
        let visible = servers.filter(|server| actor.may_manage(server.owner.as_deref()));
        Ok(visible
            .map(|server| {
                let tools = counts.get(&server.namespace).copied().unwrap_or_default();
                let health = health.remove(&server.namespace);
                describe(server, tools, health)
            })
            .collect())
    }

    pub(crate) async fn get_upstream(&self, actor: &Actor, namespace: &str) -> Result<Upstream, Error> {
        let found =
            self.list_upstreams(actor).await?.into_iter().find(|server| server.namespace == namespace);
        found.ok_or_else(|| Error::not_found("server", namespace))
    }

    /// Registers a server without connecting to it.
    ///
    /// Fails with [`Error::Conflict`] if the namespace is taken or the user has too many servers.
    pub(super) async fn register(&self, actor: &Actor, new: &NewUpstream) -> Result<(), Error> {
        const WHAT: &str = "admin.upstream.add";
        let (timeout, concurrency) = limits(new.call_timeout.as_deref(), new.concurrency)?;
        let owner = check::optional_id("owner", new.owner.as_deref())?;
        let owner = self.resolve_owner(actor, WHAT, owner).await?;
        self.check_transport(actor, WHAT, &new.transport).await?;
        let privileged =
            [(!new.prefix, "turn off the prefix"), (new.trust_first, "approve tools without review")];
        if let Some((_, what)) = privileged.into_iter().find(|(asked, _)| *asked && !actor.is_admin()) {
            return Err(self.refuse(actor, WHAT, &format!("only an administrator may {what}")).await);
        }
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        let servers = upstream::Entity::find().all(&*open.write).await?;
        let own = servers.iter().filter(|server| owner.is_some() && server.owner == owner).count();
        if own >= MAX_SERVERS_PER_USER && !actor.is_admin() {
            return Err(Error::Conflict(format!(
                "you have {own} servers; a user may have at most {MAX_SERVERS_PER_USER}"
            )));
        }
        let names: Vec<String> = servers.into_iter().map(|server| server.namespace).collect();
        namespaces::check(&new.namespace, actor.is_admin(), &names)?;
        let row = upstream::Model {
            namespace: new.namespace.clone(),
            owner,
            transport: transport::to_stored(&new.transport, actor.is_admin()),
            prefix: new.prefix,
            scope: new.scope.as_str().to_owned(),
            enabled: true,
            call_timeout_ms: timeout.unwrap_or_else(|| millis(DEFAULT_CALL_TIMEOUT)),
            concurrency: concurrency.unwrap_or_else(|| i32::try_from(DEFAULT_CONCURRENCY).unwrap_or(1)),
            created_at: clock::now(),
            created_by: actor.author(),
        };
        upstream::Entity::insert(upstream::ActiveModel::from(row))
            .exec_without_returning(&*open.write)
            .await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await
    }

    /// Changes a server. The change applies from the next call on; the connection is reopened.
    pub(crate) async fn update_upstream(
        &self,
        actor: &Actor,
        namespace: &str,
        change: UpstreamChange,
    ) -> Result<Upstream, Error> {
        const WHAT: &str = "admin.upstream.update";
        let before = self.load_server(actor, namespace).await?;
        let (timeout, concurrency) = limits(change.call_timeout.as_deref(), change.concurrency)?;
        if let Some(transport) = &change.transport {
            self.check_transport(actor, WHAT, transport).await?;
        }
        let about = json!({ "namespace": namespace, "change": change });
        let open = self.begin(actor, WHAT, &about).await?;
        let transport = change
            .transport
            .as_ref()
            .map_or(before.transport, |new| transport::to_stored(new, actor.is_admin()));
        let scope = change.scope.map_or(before.scope, |scope| scope.as_str().to_owned());
        upstream::Entity::update_many()
            .col_expr(upstream::Column::Transport, Expr::value(transport))
            .col_expr(upstream::Column::Scope, Expr::value(scope))
            .col_expr(upstream::Column::CallTimeoutMs, Expr::value(timeout.unwrap_or(before.call_timeout_ms)))
            .col_expr(upstream::Column::Concurrency, Expr::value(concurrency.unwrap_or(before.concurrency)))
            .filter(upstream::Column::Namespace.eq(namespace))
            .exec(&*open.write)
            .await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        self.upstreams.close(namespace).await;
        self.get_upstream(actor, namespace).await
    }

    /// Enables or disables a server. The tools of a disabled server are neither listed nor callable; their
    /// settings and approvals are kept.
    pub(crate) async fn enable_upstream(
        &self,
        actor: &Actor,
        namespace: &str,
        on: bool,
    ) -> Result<Upstream, Error> {
        self.load_server(actor, namespace).await?;
        let what = if on { "admin.upstream.enable" } else { "admin.upstream.disable" };
        let open = self.begin(actor, what, &json!({ "namespace": namespace })).await?;
        upstream::Entity::update_many()
            .col_expr(upstream::Column::Enabled, Expr::value(on))
            .filter(upstream::Column::Namespace.eq(namespace))
            .exec(&*open.write)
            .await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        if !on {
            self.upstreams.close(namespace).await;
        }
        self.get_upstream(actor, namespace).await
    }

    /// Removes a server with its tools and their settings, effective immediately (M115). Settings of a tool
    /// name that another server also offers are kept.
    pub(crate) async fn remove_upstream(&self, actor: &Actor, namespace: &str) -> Result<(), Error> {
        self.load_server(actor, namespace).await?;
        let about = json!({ "namespace": namespace });
        let open = self.begin(actor, "admin.upstream.remove", &about).await?;
        let of_it = upstream_tool::Column::Namespace.eq(namespace);
        let tools = upstream_tool::Entity::find().filter(of_it.clone()).all(&*open.write).await?;
        let names: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
        if !names.is_empty() {
            let others = upstream_tool::Entity::find()
                .filter(upstream_tool::Column::Name.is_in(&names))
                .filter(upstream_tool::Column::Namespace.ne(namespace));
            let others = others.all(&*open.write).await?;
            let gone = names.into_iter().filter(|name| others.iter().all(|other| other.name != *name));
            tool_setting::Entity::delete_many()
                .filter(tool_setting::Column::Name.is_in(gone))
                .exec(&*open.write)
                .await?;
        }
        upstream_tool::Entity::delete_many().filter(of_it).exec(&*open.write).await?;
        upstream::Entity::delete_by_id(namespace).exec(&*open.write).await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        self.upstreams.close(namespace).await;
        Ok(())
    }

    /// Returns all servers by namespace.
    pub(super) async fn load_servers(&self) -> Result<BTreeMap<String, upstream::Model>, Error> {
        let servers = upstream::Entity::find().all(self.store.read()).await?;
        Ok(servers.into_iter().map(|server| (server.namespace.clone(), server)).collect())
    }

    /// Returns a server. Fails with [`Error::NotFound`] also if another user owns it, so that its existence
    /// is not revealed.
    pub(super) async fn load_server(&self, actor: &Actor, namespace: &str) -> Result<upstream::Model, Error> {
        let found = upstream::Entity::find_by_id(namespace).one(self.store.read()).await?;
        found
            .filter(|server| actor.may_manage(server.owner.as_deref()))
            .ok_or_else(|| Error::not_found("server", namespace))
    }

    /// Returns the owner of a new server. A user can only be the owner of their own servers.
    async fn resolve_owner(
        &self,
        actor: &Actor,
        what: &'static str,
        wanted: Option<String>,
    ) -> Result<Option<String>, Error> {
        match (actor.user(), wanted) {
            (None, wanted) => Ok(wanted),
            (Some(user), Some(wanted)) if wanted != user => {
                Err(self.refuse(actor, what, "users may install servers only for themselves").await)
            }
            (Some(user), _) => Ok(Some(user.to_owned())),
        }
    }

    /// Checks that the actor may use this transport and that it is valid. A refusal is recorded in the audit.
    async fn check_transport(&self, actor: &Actor, what: &'static str, new: &Transport) -> Result<(), Error> {
        if let Some(why) = transport::admin_only_reason(new).filter(|_| !actor.is_admin()) {
            return Err(self.refuse(actor, what, why).await);
        }
        if matches!(new, Transport::Stdio(_)) && !self.allow_stdio {
            let why = "this gateway does not start programs; set upstreams.stdio = true to allow it";
            return Err(Error::Forbidden(why.to_owned()));
        }
        transport::check(new).map_err(|why| Error::invalid("transport", why))
    }
}

/// Parses call timeout (to milliseconds) and concurrency, and checks their ranges.
fn limits(timeout: Option<&str>, concurrency: Option<u32>) -> Result<(Option<i64>, Option<i32>), Error> {
    let timeout = timeout.map(str::trim).filter(|timeout| !timeout.is_empty());
    let timeout = timeout
        .map(|timeout| check::duration("call_timeout", timeout, MIN_CALL_TIMEOUT, MAX_CALL_TIMEOUT))
        .transpose()?;
    if concurrency.is_some_and(|concurrency| !(1..=MAX_CONCURRENCY).contains(&concurrency)) {
        return Err(Error::invalid("concurrency", format!("must be between 1 and {MAX_CONCURRENCY}")));
    }
    Ok((timeout.map(millis), concurrency.and_then(|concurrency| i32::try_from(concurrency).ok())))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn describe(row: upstream::Model, tools: ToolCounts, health: Option<Health>) -> Upstream {
    let timeout = Duration::from_millis(u64::try_from(row.call_timeout_ms).unwrap_or_default());
    Upstream {
        transport: transport::for_display(&row.transport),
        scope: row.scope.parse().unwrap_or(Scope::Pm),
        namespace: row.namespace,
        owner: row.owner,
        prefix: row.prefix,
        enabled: row.enabled,
        call_timeout: humantime::format_duration(timeout).to_string(),
        concurrency: row.concurrency,
        tools,
        health,
        created_at: clock::text(row.created_at),
        created_by: row.created_by,
    }
}
