use std::{collections::BTreeMap, time::Duration};

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{ToolState, namespaces, tools::state};
use crate::{
    admin::{Actor, Admin, Error, check},
    catalogue, clock,
    policy::Scope,
    store::entity::{tool_setting, upstream, upstream_tool},
    upstreams::{Health, Transport},
};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
const CONCURRENCY: u32 = 8;
const MOST_CONCURRENCY: u32 = 256;
/// Of one user.
const MOST_SERVERS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUpstream {
    /// Its tools are called `<namespace>.<tool>`.
    pub namespace: String,
    pub transport: Transport,
    /// Whether its tools get the namespace in front of their names. Only administrators may leave it out.
    #[serde(default = "yes")]
    pub prefix: bool,
    /// Which agents may call its tools, unless a tool has a scope of its own.
    #[serde(default)]
    pub scope: Scope,
    /// How long a call may take, as 30s.
    #[serde(default)]
    pub call_timeout: Option<String>,
    /// How many calls run at a time.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// The user whose server it is. A user's own when a user adds it.
    #[serde(default)]
    pub owner: Option<String>,
    /// Approve what it offers when it is first asked, without a look at it. For administrators.
    #[serde(default)]
    pub trust_first: bool,
}

fn yes() -> bool {
    true
}

/// What to change; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamChange {
    pub transport: Option<Transport>,
    pub scope: Option<Scope>,
    pub call_timeout: Option<String>,
    pub concurrency: Option<u32>,
}

/// Of the tools that a server has or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCounts {
    pub approved: usize,
    pub quarantined: usize,
    pub gone: usize,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Upstream {
    pub namespace: String,
    pub owner: Option<String>,
    /// Nothing when it cannot be read; then the server is not used.
    pub transport: Option<Transport>,
    pub prefix: bool,
    pub scope: Scope,
    pub enabled: bool,
    pub call_timeout: String,
    pub concurrency: i32,
    pub tools: ToolCounts,
    /// Nothing when it was not used since the gateway was started.
    pub health: Option<Health>,
    pub created_at: String,
    pub created_by: String,
}

impl Admin {
    /// By namespace. Users see the servers that they installed.
    pub async fn list_upstreams(&self, actor: &Actor) -> Result<Vec<Upstream>, Error> {
        let mut counts: BTreeMap<String, ToolCounts> = BTreeMap::new();
        for row in upstream_tool::Entity::find().all(self.store.read()).await? {
            let counts = counts.entry(row.namespace).or_default();
            *match state(&row.state) {
                ToolState::Approved => &mut counts.approved,
                ToolState::Quarantined => &mut counts.quarantined,
                ToolState::Gone => &mut counts.gone,
            } += 1;
        }
        let mut health = self.upstreams.health();
        let servers = self.servers().await?.into_values();
        let seen = servers.filter(|server| actor.may_manage(server.owner.as_deref()));
        Ok(seen
            .map(|server| {
                let tools = counts.get(&server.namespace).copied().unwrap_or_default();
                let health = health.remove(&server.namespace);
                told(server, tools, health)
            })
            .collect())
    }

    pub async fn get_upstream(&self, actor: &Actor, namespace: &str) -> Result<Upstream, Error> {
        let found =
            self.list_upstreams(actor).await?.into_iter().find(|server| server.namespace == namespace);
        found.ok_or_else(|| Error::not_found("server", namespace))
    }

    /// Registers it and asks nothing of it yet.
    pub(super) async fn register(&self, actor: &Actor, new: &NewUpstream) -> Result<(), Error> {
        const WHAT: &str = "admin.upstream.add";
        let (timeout, concurrency) = limits(new.call_timeout.as_deref(), new.concurrency)?;
        let owner = check::optional_id("owner", new.owner.as_deref())?;
        let owner = self.owner(actor, WHAT, owner).await?;
        self.may_reach(actor, WHAT, &new.transport).await?;
        let more = [(!new.prefix, "leave out the prefix"), (new.trust_first, "trust a server unseen")];
        if let Some((_, what)) = more.into_iter().find(|(asked, _)| *asked && !actor.is_admin()) {
            return Err(self.refuse(actor, WHAT, &format!("only an administrator may {what}")).await);
        }
        let open = self.begin(actor, WHAT, &json!(new)).await?;
        let servers = upstream::Entity::find().all(&*open.write).await?;
        let own = servers.iter().filter(|server| owner.is_some() && server.owner == owner).count();
        if own >= MOST_SERVERS && !actor.is_admin() {
            return Err(Error::Conflict(format!(
                "you have {own} servers; that is as many as a user may have"
            )));
        }
        let names: Vec<String> = servers.into_iter().map(|server| server.namespace).collect();
        namespaces::check(&new.namespace, actor.is_admin(), &names)?;
        let row = upstream::Model {
            namespace: new.namespace.clone(),
            owner,
            transport: new.transport.kept(actor),
            prefix: new.prefix,
            scope: new.scope.as_str().to_owned(),
            enabled: true,
            call_timeout_ms: timeout.unwrap_or_else(|| millis(CALL_TIMEOUT)),
            concurrency: concurrency.unwrap_or_else(|| i32::try_from(CONCURRENCY).unwrap_or(1)),
            created_at: clock::now(),
            created_by: actor.author(),
        };
        upstream::Entity::insert(upstream::ActiveModel::from(row))
            .exec_without_returning(&*open.write)
            .await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await
    }

    /// Counts from the next call on; the connection is made anew.
    pub async fn update_upstream(
        &self,
        actor: &Actor,
        namespace: &str,
        change: UpstreamChange,
    ) -> Result<Upstream, Error> {
        const WHAT: &str = "admin.upstream.update";
        let before = self.server(actor, namespace).await?;
        let (timeout, concurrency) = limits(change.call_timeout.as_deref(), change.concurrency)?;
        if let Some(transport) = &change.transport {
            self.may_reach(actor, WHAT, transport).await?;
        }
        let about = json!({ "namespace": namespace, "change": change });
        let open = self.begin(actor, WHAT, &about).await?;
        let transport = change.transport.as_ref().map_or(before.transport, |transport| transport.kept(actor));
        let scope = change.scope.map_or(before.scope, |scope| scope.as_str().to_owned());
        upstream::Entity::update_many()
            .col_expr(upstream::Column::Transport, Expr::value(transport))
            .col_expr(upstream::Column::Scope, Expr::value(scope))
            .col_expr(upstream::Column::CallTimeoutMs, Expr::value(timeout.unwrap_or(before.call_timeout_ms)))
            .col_expr(upstream::Column::Concurrency, Expr::value(concurrency.unwrap_or(before.concurrency)))
            .filter(upstream::Column::Namespace.eq(namespace))
            .exec(&*open.write)
            .await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        self.upstreams.close(namespace).await;
        self.get_upstream(actor, namespace).await
    }

    /// Off: its tools are neither listed nor callable, and nothing about them is lost.
    pub async fn enable_upstream(&self, actor: &Actor, namespace: &str, on: bool) -> Result<Upstream, Error> {
        self.server(actor, namespace).await?;
        let what = if on { "admin.upstream.enable" } else { "admin.upstream.disable" };
        let open = self.begin(actor, what, &json!({ "namespace": namespace })).await?;
        upstream::Entity::update_many()
            .col_expr(upstream::Column::Enabled, Expr::value(on))
            .filter(upstream::Column::Namespace.eq(namespace))
            .exec(&*open.write)
            .await?;
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        if !on {
            self.upstreams.close(namespace).await;
        }
        self.get_upstream(actor, namespace).await
    }

    /// With its tools and what was said about them: gone from every list and not callable, at once (M115).
    pub async fn remove_upstream(&self, actor: &Actor, namespace: &str) -> Result<(), Error> {
        self.server(actor, namespace).await?;
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
        catalogue::touch(&open.write).await?;
        self.commit(open).await?;
        self.upstreams.close(namespace).await;
        Ok(())
    }

    pub(super) async fn servers(&self) -> Result<BTreeMap<String, upstream::Model>, Error> {
        let servers = upstream::Entity::find().all(self.store.read()).await?;
        Ok(servers.into_iter().map(|server| (server.namespace.clone(), server)).collect())
    }

    /// Another user's server reads like one that is not there.
    pub(super) async fn server(&self, actor: &Actor, namespace: &str) -> Result<upstream::Model, Error> {
        let found = upstream::Entity::find_by_id(namespace).one(self.store.read()).await?;
        found
            .filter(|server| actor.may_manage(server.owner.as_deref()))
            .ok_or_else(|| Error::not_found("server", namespace))
    }

    async fn owner(
        &self,
        actor: &Actor,
        what: &'static str,
        wanted: Option<String>,
    ) -> Result<Option<String>, Error> {
        match (actor.user(), wanted) {
            (None, wanted) => Ok(wanted),
            (Some(user), Some(wanted)) if wanted != user => {
                Err(self.refuse(actor, what, "you may install servers for yourself alone").await)
            }
            (Some(user), _) => Ok(Some(user.to_owned())),
        }
    }

    async fn may_reach(&self, actor: &Actor, what: &'static str, transport: &Transport) -> Result<(), Error> {
        if let Some(why) = transport.needs_admin().filter(|_| !actor.is_admin()) {
            return Err(self.refuse(actor, what, why).await);
        }
        if matches!(transport, Transport::Stdio(_)) && !self.stdio {
            let why = "this gateway starts no programs; upstreams.stdio = true permits it";
            return Err(Error::Forbidden(why.to_owned()));
        }
        transport.check()
    }
}

fn limits(timeout: Option<&str>, concurrency: Option<u32>) -> Result<(Option<i64>, Option<i32>), Error> {
    let timeout = timeout.map(str::trim).filter(|timeout| !timeout.is_empty());
    let timeout = timeout
        .map(|timeout| check::duration("call_timeout", timeout, SHORTEST_TIMEOUT, LONGEST_TIMEOUT))
        .transpose()?;
    if concurrency.is_some_and(|concurrency| !(1..=MOST_CONCURRENCY).contains(&concurrency)) {
        return Err(Error::invalid("concurrency", format!("must be between 1 and {MOST_CONCURRENCY}")));
    }
    Ok((timeout.map(millis), concurrency.and_then(|concurrency| i32::try_from(concurrency).ok())))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn told(row: upstream::Model, tools: ToolCounts, health: Option<Health>) -> Upstream {
    let timeout = Duration::from_millis(u64::try_from(row.call_timeout_ms).unwrap_or_default());
    Upstream {
        transport: Transport::shown(&row.transport),
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
