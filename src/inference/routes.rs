//! The routes to models, and which of them a request may use in which order.

use super::{Endpoint, Offline};
use crate::context::Routing;

/// The name of the local route.
pub(crate) const LOCAL: &str = "local";

/// Where replies come from.
#[derive(Debug)]
pub(crate) enum Backend {
    Offline(Offline),
    Routes(Box<Routes>),
    /// All replies come from a recording; no server is called.
    Recorded,
}

/// The configured endpoints. External providers are only reached through the egress (P15).
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) local: Option<Route>,
    pub(crate) external: Vec<Route>,
}

#[derive(Debug)]
pub(crate) struct Route {
    /// `local`, or the name of the external provider.
    pub(crate) provider: String,
    pub(crate) endpoint: Endpoint,
}

impl Routes {
    /// P19: returns the routes that a request may use, in order.
    pub(super) fn order(&self, routing: &Routing) -> Vec<&Route> {
        let external = allowed_providers(routing, self.external.iter().map(|route| route.provider.as_str()));
        let external =
            external.into_iter().filter_map(|name| self.external.iter().find(|route| route.provider == name));
        if routing.prefer_local {
            self.local.iter().chain(external).collect()
        } else {
            external.chain(&self.local).collect()
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Route> {
        self.local.iter().chain(&self.external)
    }
}

/// Returns the configured providers that are allowed: first those in the fallback order, then the others as
/// listed.
fn allowed_providers<'n>(routing: &'n Routing, configured: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let configured: Vec<&str> = configured.collect();
    let allowed = &routing.allowed_external_providers;
    let mut out: Vec<&str> = Vec::new();
    for name in routing.fallback_provider_order.iter().chain(allowed) {
        let name = name.as_str();
        if configured.contains(&name) && allowed.iter().any(|allowed| allowed == name) && !out.contains(&name)
        {
            out.push(name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// P19: ordered by preference; a provider that is not allowed is never used.
    #[test]
    fn only_allowed_providers_are_used_in_the_preferred_order() {
        let configured = ["alpha", "beta", "gamma"];
        for (allowed, order, expected) in [
            (vec![], vec!["alpha"], vec![]),
            (vec!["beta", "alpha"], vec![], vec!["beta", "alpha"]),
            (vec!["beta", "alpha"], vec!["alpha"], vec!["alpha", "beta"]),
            (vec!["alpha"], vec!["gamma", "alpha", "alpha"], vec!["alpha"]),
            (vec!["unknown", "gamma"], vec!["unknown"], vec!["gamma"]),
        ] {
            let routing = Routing {
                prefer_local: true,
                allowed_external_providers: texts(&allowed),
                fallback_provider_order: texts(&order),
            };
            assert_eq!(
                allowed_providers(&routing, configured.into_iter()),
                expected,
                "{allowed:?} {order:?}"
            );
        }
    }
}
