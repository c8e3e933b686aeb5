//! The catalogues of the users for whom this worker acts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use leased::HeldLease;
use policy::{Lease, MemoryProfile};

use super::{Allowlist, Catalogue, ToolInfo};

/// A catalogue is fetched again after this time.
const TTL: Duration = Duration::from_secs(30);
/// Stale catalogues are dropped when there are this many.
const MAX_AUDIENCES: usize = 4096;

/// For whom the gateway lists tools, which depends on the user, the tools and the memory profile of a lease.
/// `None`: without a lease.
pub(super) type Audience = Option<(String, Option<Vec<String>>, Option<MemoryProfile>)>;

pub(super) fn audience(lease: Option<&HeldLease>) -> Audience {
    lease.map(|held| {
        let Lease { user_id, tools, profile, .. } = &held.lease;
        (user_id.clone(), tools.clone(), profile.clone())
    })
}

/// Catalogues by audience. Most users have the same tools: each different list is read once, since what a
/// catalogue knows about words costs more than a whole handoff.
#[derive(Debug)]
pub(super) struct Catalogues {
    allowlist: Allowlist,
    state: Mutex<State>,
    without_tools: OnceLock<Arc<Catalogue>>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Audience, Known>,
    /// Each different catalogue that is in use, once.
    distinct: Vec<Weak<Catalogue>>,
}

/// The cached catalogue of an audience.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Held while a caller fetches the catalogue.
    pub(super) listing: Arc<tokio::sync::Mutex<()>>,
    pub(super) cached: Option<CachedCatalogue>,
}

/// A catalogue and when it was fetched.
#[derive(Clone, Debug)]
pub(super) struct CachedCatalogue {
    at: Instant,
    pub(super) catalogue: Arc<Catalogue>,
}

impl Known {
    /// Returns the catalogue, unless it is stale.
    pub(super) fn fresh(&self) -> Option<Arc<Catalogue>> {
        let fresh = self.cached.as_ref().filter(|cached| cached.at.elapsed() < TTL);
        fresh.map(|cached| Arc::clone(&cached.catalogue))
    }

    /// Returns whether a caller fetches the catalogue, or waits for it.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.listing) > 1
    }
}

impl Catalogues {
    pub(super) fn new(allowlist: Allowlist) -> Self {
        Self { allowlist, state: Mutex::default(), without_tools: OnceLock::new() }
    }

    pub(super) fn get(&self, audience: &Audience) -> Known {
        let mut state = self.lock();
        if let Some(known) = state.known.get(audience) {
            return known.clone();
        }
        if state.known.len() >= MAX_AUDIENCES {
            state.known.retain(|_, known| known.fresh().is_some() || known.is_in_use());
        }
        if state.known.len() >= MAX_AUDIENCES {
            state.known.retain(|_, known| known.is_in_use());
        }
        state.known.entry(audience.clone()).or_default().clone()
    }

    /// Returns the catalogue of a list of tools.
    pub(super) fn read(&self, tools: Vec<ToolInfo>) -> Arc<Catalogue> {
        if tools.is_empty() {
            return Arc::clone(self.without_tools.get_or_init(|| Arc::new(self.make(Vec::new()))));
        }
        let permitted = Catalogue::permitted(self.allowlist, tools);
        let distinct = self.lock().distinct.clone();
        let same = distinct.iter().filter_map(Weak::upgrade).find(|known| known.has_exactly(&permitted));
        same.unwrap_or_else(|| {
            let made = Arc::new(Catalogue::of(permitted));
            let distinct = &mut self.lock().distinct;
            distinct.retain(|known| known.strong_count() > 0);
            distinct.push(Arc::downgrade(&made));
            made
        })
    }

    fn make(&self, tools: Vec<ToolInfo>) -> Catalogue {
        Catalogue::new(self.allowlist, tools)
    }

    /// Keeps a catalogue for an audience. An empty one may be that of a lease which has ended, and another
    /// lease of the user may list more.
    pub(super) fn keep(&self, audience: Audience, catalogue: &Arc<Catalogue>) {
        if catalogue.tools().next().is_some() {
            let cached = CachedCatalogue { at: Instant::now(), catalogue: Arc::clone(catalogue) };
            self.lock().known.entry(audience).or_default().cached = Some(cached);
        }
    }

    /// No value is ever left half written, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use subjects::Role;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolInfo {
        ToolInfo {
            name: name.to_owned(),
            title: String::new(),
            description: description.to_owned(),
            input_schema: Map::new(),
            only_reads: true,
        }
    }

    #[test]
    fn users_with_the_same_tools_share_a_catalogue() {
        let catalogues = Catalogues::new(Allowlist::for_role(Role::ProjectManager));
        let first = catalogues.read(vec![tool("help.list", "Lists."), tool("help.get", "Gets.")]);
        let same = catalogues.read(vec![tool("help.get", "Gets."), tool("help.list", "Lists.")]);
        assert!(Arc::ptr_eq(&first, &same));
        for other in
            [vec![tool("help.list", "Lists.")], vec![tool("help.list", "Lists."), tool("help.get", "!")]]
        {
            assert!(!Arc::ptr_eq(&first, &catalogues.read(other)));
        }
        assert!(Arc::ptr_eq(&catalogues.read(Vec::new()), &catalogues.read(Vec::new())));
    }

    #[test]
    fn many_users_have_a_catalogue_at_the_same_time() {
        let catalogues = Catalogues::new(Allowlist::for_role(Role::ProjectManager));
        let catalogue = catalogues.read(vec![tool("help.list", "Lists.")]);
        let user = |number: usize| Some((format!("user-{number}"), None, None));
        for number in 0..MAX_AUDIENCES {
            drop(catalogues.get(&user(number)));
            catalogues.keep(user(number), &catalogue);
        }
        assert!((0..MAX_AUDIENCES).all(|number| catalogues.get(&user(number)).fresh().is_some()));
        let waiting = catalogues.get(&user(0));
        assert!(catalogues.get(&user(MAX_AUDIENCES)).fresh().is_none(), "room was made");
        assert!(catalogues.get(&user(0)).fresh().is_some(), "what is waited for stays");
        assert!(catalogues.get(&user(1)).fresh().is_none());
        drop(waiting);
    }
}
