//! MCP servers of this node and their tools.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use broker::Chain;
use policy::{Lease, Origin, Scope};
use rmcp::model::Tool;
use serde_json::{Map, Value};
use subjects::canonical;
use tokio::sync::watch;
use tracing::warn;
use upstream::Upstream;

use crate::{Error, UpstreamSettings};

/// The MCP servers of this node, by their namespaces.
#[derive(Debug)]
pub(crate) struct LocalTools(BTreeMap<String, Namespace>);

#[derive(Debug)]
struct Namespace {
    upstream: Upstream,
    changes: watch::Receiver<u64>,
    /// The state of `changes` at the last listing.
    listed_at: AtomicU64,
    listing: Mutex<Option<Arc<Listing>>>,
    /// Held while the tools are listed, so that concurrent calls list once.
    is_listing: tokio::sync::Mutex<()>,
}

/// The tools of a server, as it described them last.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Covers the whole description of every tool.
    pub(crate) digest: String,
    /// By the name under which they are served.
    pub(crate) tools: BTreeMap<String, LocalTool>,
}

#[derive(Clone, Debug)]
pub(crate) struct LocalTool {
    /// The name at the server.
    remote: String,
    pub(crate) definition: Tool,
    /// `None` if the schema is invalid.
    arguments: Option<Arc<schema::Validator>>,
}

/// A tool of this node that a call names, for the decision and for the call.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) policy: policy::Tool,
    pub(crate) remote: String,
    pub(crate) upstream: Upstream,
    arguments: Option<Arc<schema::Validator>>,
}

impl Found {
    /// Returns how the arguments violate the schema of the tool, if they do.
    pub(crate) fn check_arguments(&self, arguments: &mut Map<String, Value>) -> Option<String> {
        let validator = self.arguments.as_ref()?;
        let value = Value::Object(std::mem::take(arguments));
        let problem = validator.check(&value).err();
        if let Value::Object(back) = value {
            *arguments = back;
        }
        problem.map(|problem| format!("The arguments do not match the tool's input schema: {problem}"))
    }
}

impl LocalTools {
    pub(crate) fn new(settings: &[UpstreamSettings]) -> Result<Self, Error> {
        let mut namespaces = BTreeMap::new();
        for server in settings {
            let options = server.options();
            let options =
                options.map_err(|error| Error::Upstream(upstream::Error::Options(error.to_string())))?;
            let upstream = Upstream::new(options).map_err(Error::Upstream)?;
            let namespace = Namespace {
                changes: upstream.tool_changes(),
                upstream,
                listed_at: AtomicU64::new(0),
                listing: Mutex::default(),
                is_listing: tokio::sync::Mutex::default(),
            };
            namespaces.insert(server.namespace.clone(), namespace);
        }
        Ok(Self(namespaces))
    }

    /// Returns the digest of the tools of each server that can be reached.
    pub(crate) async fn digests(&self) -> BTreeMap<String, String> {
        let mut digests = BTreeMap::new();
        for (name, namespace) in &self.0 {
            if let Some(listing) = namespace.listing(name).await {
                digests.insert(name.clone(), listing.digest.clone());
            }
        }
        digests
    }

    /// Finds a tool of a namespace that the lease pins. `None` if the gateway has to know the tool.
    pub(crate) async fn find(&self, lease: &Lease, tool: &str) -> Option<Found> {
        let (name, _) = tool.split_once('.')?;
        let (pinned, namespace) = (lease.local.get(name)?, self.0.get(name)?);
        let listing = namespace.listing(name).await?;
        let found = listing.tools.get(tool)?;
        Some(Found {
            policy: to_policy(tool, listing.digest != *pinned),
            remote: found.remote.clone(),
            arguments: found.arguments.clone(),
            upstream: namespace.upstream.clone(),
        })
    }

    /// Returns whether the lease pins the namespace of a tool, so that the tool is one of this node if it
    /// exists.
    pub(crate) fn has_namespace_of(&self, lease: &Lease, tool: &str) -> bool {
        tool.split_once('.')
            .is_some_and(|(name, _)| lease.local.contains_key(name) && self.0.contains_key(name))
    }

    /// Returns the definitions of all tools that a lease pins, with what a decision needs.
    pub(crate) async fn pinned(&self, lease: &Lease) -> Vec<(policy::Tool, Tool)> {
        let mut found = Vec::new();
        for (name, pinned) in &lease.local {
            let Some(namespace) = self.0.get(name) else { continue };
            let Some(listing) = namespace.listing(name).await else { continue };
            let is_changed = listing.digest != *pinned;
            let tools = listing.tools.iter();
            found.extend(tools.map(|(name, tool)| (to_policy(name, is_changed), tool.definition.clone())));
        }
        found
    }

    /// Ends all servers.
    pub(crate) async fn close(&self) {
        for namespace in self.0.values() {
            namespace.upstream.close().await;
        }
    }
}

impl Namespace {
    /// Returns the tools, listed again if the server announced a change or was restarted. While the server
    /// cannot be reached, those that were listed last.
    async fn listing(&self, name: &str) -> Option<Arc<Listing>> {
        if let Some(listing) = self.current() {
            return Some(listing);
        }
        let _listing = self.is_listing.lock().await;
        if let Some(listing) = self.current() {
            return Some(listing);
        }
        // Read before the listing. The connection that a listing makes counts as a change, too.
        let tools = self.upstream.tools().await;
        let seen = *self.changes.borrow();
        match tools {
            Ok(tools) => {
                let listing = Arc::new(Listing::new(name, tools));
                *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Some(listing.clone());
                self.listed_at.store(seen, Ordering::Release);
                Some(listing)
            }
            Err(error) => {
                warn!(namespace = name, error = %Chain(&error), "Tools of an MCP server not listed.");
                self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
        }
    }

    fn current(&self) -> Option<Arc<Listing>> {
        let is_current = *self.changes.borrow() == self.listed_at.load(Ordering::Acquire);
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| is_current)
    }
}

impl Listing {
    fn new(namespace: &str, tools: Vec<Map<String, Value>>) -> Self {
        let mut by_name = BTreeMap::new();
        for tool in tools {
            let Some(remote) = tool.get("name").and_then(Value::as_str).map(str::to_owned) else { continue };
            let text = canonical::text(&Value::Object(tool.clone()));
            let definition = serde_json::from_value::<Tool>(Value::Object(tool));
            let Ok(definition) = definition else {
                warn!(namespace, "Tool of an MCP server is not described as MCP requires; it is not served.");
                continue;
            };
            let name = format!("{namespace}.{remote}");
            let schema = Value::Object(definition.input_schema.as_ref().clone());
            let arguments = schema::Validator::new(&schema).ok().map(Arc::new);
            let definition = upstream::sanitize::tool(definition, &name);
            by_name.insert(name, (text, LocalTool { remote, definition, arguments }));
        }
        let described: Vec<&str> = by_name.values().map(|(text, _)| text.as_str()).collect();
        let digest = subjects::edge::digest(described.join("\n").as_bytes());
        Self { digest, tools: by_name.into_iter().map(|(name, (_, tool))| (name, tool)).collect() }
    }
}

fn to_policy(name: &str, is_changed: bool) -> policy::Tool {
    policy::Tool {
        name: name.to_owned(),
        origin: Origin::Installed { owner: None },
        enabled: true,
        scope: Scope::Sandbox,
        quarantined: is_changed,
        needs: Vec::new(),
        gate: None,
        // The gateway pins no namespace for a memory profile that may not reach the network.
        network: None,
    }
}
