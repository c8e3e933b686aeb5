//! The tools as they are served at this moment: ours and those of the servers behind us, with what was decided about each.
//!
//! A snapshot, replaced as a whole when the store says that something changed.

mod effect; // whether an upstream tool only reads
mod load; // from the store

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
pub use effect::{DoesBy, Effect};
use sea_orm::{DbErr, EntityTrait, ExprTrait, sea_query::Expr};
use tokio::sync::Mutex;
use tracing::debug;

use crate::{
    policy::{self, Rule, Standing, may_see},
    store::{
        Store, Write,
        entity::{revision, upstream},
    },
    tools::{self, Entry},
};

/// What runs when a tool is called.
#[derive(Clone, Debug)]
pub enum Runs {
    Own(Arc<Entry>),
    Behind(Arc<Behind>),
}

/// A tool of a server behind us.
#[derive(Debug)]
pub struct Behind {
    pub server: Arc<upstream::Model>,
    /// Its name over there.
    pub remote: String,
    /// Arguments are held against the copy that was approved, not against what the server says now.
    pub arguments: Option<jsonschema::Validator>,
    /// An administrator says that calling it twice does no harm.
    pub safe_to_repeat: bool,
}

/// A tool as it is served.
#[derive(Clone, Debug)]
pub struct Served {
    pub policy: policy::Tool,
    pub shown: rmcp::model::Tool,
    /// Some arguments are to stand in headers as well.
    pub wants_headers: bool,
    pub runs: Runs,
}

#[derive(Debug, Default)]
pub struct Catalogue {
    revision: i64,
    tools: BTreeMap<String, Served>,
    rules: Vec<Rule>,
}

impl Catalogue {
    pub fn get(&self, name: &str) -> Option<&Served> {
        self.tools.get(name)
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// By name, so that a prompt made of them stays the same.
    pub fn all(&self) -> impl Iterator<Item = &Served> {
        self.tools.values()
    }

    /// What this caller may call at all.
    pub fn seen_by<'c>(&'c self, standing: &'c Standing) -> impl Iterator<Item = &'c Served> {
        self.all().filter(move |tool| may_see(standing, Some(&tool.policy)).is_ok())
    }
}

/// The tools of one caller, for help: no more than `tools/list` shows.
#[derive(Debug)]
pub(crate) struct SeenBy {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) standing: Standing,
}

impl tools::Shelf for SeenBy {
    fn tools(&self) -> Vec<tools::Shown> {
        let shown = self.catalogue.seen_by(&self.standing).map(|tool| tools::Shown {
            name: tool.policy.name.clone(),
            title: tool.shown.title.clone().unwrap_or_default(),
            description: tool.shown.description.clone().unwrap_or_default().into_owned(),
            input_schema: tool.shown.input_schema.clone(),
        });
        shown.collect()
    }
}

/// Keeps the present catalogue.
#[derive(Debug)]
pub struct Shelf {
    own: Vec<Arc<Entry>>,
    current: ArcSwap<Catalogue>,
    /// One loads, the others wait for it.
    loading: Mutex<()>,
}

impl Shelf {
    pub fn new(own: Vec<Entry>) -> Self {
        let own = own.into_iter().map(Arc::new).collect();
        Self { own, current: ArcSwap::default(), loading: Mutex::default() }
    }

    /// The catalogue of this revision or a newer one.
    pub async fn at(&self, store: &Store, revision: i64) -> Result<Arc<Catalogue>, DbErr> {
        let current = self.current.load_full();
        if current.revision >= revision {
            return Ok(current);
        }
        let _turn = self.loading.lock().await;
        let current = self.current.load_full();
        if current.revision >= revision {
            return Ok(current);
        }
        let loaded = Arc::new(load::catalogue(store, &self.own).await?);
        debug!(revision = loaded.revision, tools = loaded.tools.len(), "Tool catalogue loaded.");
        self.current.store(loaded.clone());
        Ok(loaded)
    }

    /// As it is in the store now.
    pub async fn fresh(&self, store: &Store) -> Result<Arc<Catalogue>, DbErr> {
        let revision = revision::Entity::find_by_id(1).one(store.read()).await?;
        self.at(store, revision.map_or(i64::MAX, |revision| revision.value)).await
    }

    /// Without a look at the store: for what may be a moment old.
    pub fn last(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }
}

/// Says that something which decides about calls changes with this transaction.
pub async fn touch(write: &Write) -> Result<(), DbErr> {
    use sea_orm::{ColumnTrait, QueryFilter};
    revision::Entity::update_many()
        .col_expr(revision::Column::Value, Expr::col(revision::Column::Value).add(1))
        .filter(revision::Column::Id.eq(1))
        .exec(&**write)
        .await?;
    Ok(())
}
