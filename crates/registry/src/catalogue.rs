//! The tools as they are served: built-in tools and approved upstream tools, with their settings and the
//! access rules.
//!
//! A snapshot, replaced as a whole when the revision in the store changes.

mod effect;
mod load;

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
pub use effect::{Effect, EffectSource};
use policy::{Denial, Facts, Rule, Standing, check_visible};
use sea_orm::{DbErr, EntityTrait, ExprTrait, sea_query::Expr};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tracing::debug;

use control::Entry;
use store::{
    Store, WriteTransaction,
    entity::{revision, upstream},
};

/// The implementation that runs when a tool is called.
#[derive(Clone, Debug)]
pub enum Backend {
    BuiltIn(Arc<Entry>),
    Upstream(Arc<UpstreamTool>),
}

/// A tool of an upstream.
#[derive(Debug)]
pub struct UpstreamTool {
    pub server: Arc<upstream::Model>,
    /// The tool's name at the upstream.
    pub remote: String,
    /// Validates arguments against the approved schema, not against the one that the upstream offers now.
    /// `None` if the schema is invalid.
    pub arguments: Option<schema::Validator>,
    /// Set by an administrator: calling the tool twice does no harm.
    pub safe_to_repeat: bool,
}

/// A tool as it is served.
#[derive(Clone, Debug)]
pub struct ServedTool {
    pub policy: policy::Tool,
    /// The definition that `tools/list` returns.
    pub definition: rmcp::model::Tool,
    /// Whether the schema requires some arguments to be sent as HTTP headers too.
    pub has_header_arguments: bool,
    pub backend: Backend,
}

/// A snapshot of all served tools and the access rules.
#[derive(Debug, Default)]
pub struct Catalogue {
    revision: i64,
    tools: BTreeMap<String, ServedTool>,
    rules: Vec<Rule>,
}

impl Catalogue {
    pub fn get(&self, name: &str) -> Option<&ServedTool> {
        self.tools.get(name)
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns all tools, sorted by name so that a prompt made of them does not change between calls.
    pub fn all(&self) -> impl Iterator<Item = &ServedTool> {
        self.tools.values()
    }

    /// Returns the tools that the caller may see.
    pub fn visible_to<'c>(&'c self, standing: &'c Standing) -> impl Iterator<Item = &'c ServedTool> {
        self.all().filter(move |tool| check_visible(standing, Some(&tool.policy)).is_ok())
    }
}

/// The tools of one caller, for the help tools: the same ones that `tools/list` returns.
#[derive(Debug)]
pub struct CallerTools {
    pub catalogue: Arc<Catalogue>,
    pub standing: Standing,
}

impl control::VisibleTools for CallerTools {
    fn list(&self) -> Vec<control::VisibleTool> {
        let visible = self.catalogue.visible_to(&self.standing).map(|tool| control::VisibleTool {
            name: tool.policy.name.clone(),
            title: tool.definition.title.clone().unwrap_or_default(),
            description: tool.definition.description.clone().unwrap_or_default().into_owned(),
            input_schema: tool.definition.input_schema.clone(),
        });
        visible.collect()
    }

    fn decide(
        &self,
        standing: &Standing,
        tool: &str,
        arguments: &Map<String, Value>,
        facts: &Facts,
    ) -> Result<(), Denial> {
        let known = self.catalogue.get(tool).map(|tool| &tool.policy);
        policy::decide(standing, known, self.catalogue.rules(), arguments, facts).map(drop)
    }
}

/// Keeps the current catalogue, and loads a newer one when it is needed.
#[derive(Debug)]
pub struct CatalogueCache {
    built_in: Vec<Arc<Entry>>,
    current: ArcSwap<Catalogue>,
    /// Held while loading, so that concurrent calls load once.
    loading: Mutex<()>,
}

impl CatalogueCache {
    pub fn new(built_in: Vec<Entry>) -> Self {
        let built_in = built_in.into_iter().map(Arc::new).collect();
        Self { built_in, current: ArcSwap::default(), loading: Mutex::default() }
    }

    /// Returns the catalogue of this revision or a newer one; loads it if the cached one is older.
    pub async fn at_least(&self, store: &Store, revision: i64) -> Result<Arc<Catalogue>, DbErr> {
        let current = self.current.load_full();
        if current.revision >= revision {
            return Ok(current);
        }
        let _loading = self.loading.lock().await;
        let current = self.current.load_full();
        if current.revision >= revision {
            return Ok(current);
        }
        let loaded = Arc::new(load::catalogue(store, &self.built_in).await?);
        debug!(revision = loaded.revision, tools = loaded.tools.len(), "Tool catalogue loaded.");
        self.current.store(loaded.clone());
        Ok(loaded)
    }

    /// Returns the catalogue of the revision that is in the store now.
    pub async fn latest(&self, store: &Store) -> Result<Arc<Catalogue>, DbErr> {
        let revision = revision::Entity::find_by_id(1).one(store.read()).await?;
        self.at_least(store, revision.map_or(i64::MAX, |revision| revision.value)).await
    }

    /// Returns the cached catalogue, which may be out of date, without a query.
    pub fn cached(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }
}

/// Increments the revision as part of the transaction, so that every instance loads the catalogue again. Call
/// it when tools, settings or access rules change.
pub async fn bump_revision(write: &WriteTransaction) -> Result<(), DbErr> {
    use sea_orm::{ColumnTrait, QueryFilter};
    revision::Entity::update_many()
        .col_expr(revision::Column::Value, Expr::col(revision::Column::Value).add(1))
        .filter(revision::Column::Id.eq(1))
        .exec(&**write)
        .await?;
    Ok(())
}
