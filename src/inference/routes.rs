use super::{Endpoint, Offline};
use crate::context::Routing;

/// The name of our own route.
pub(crate) const LOCAL: &str = "local";

/// What stands behind the word "model".
#[derive(Debug)]
pub(crate) enum Backend {
    Offline(Offline),
    Routes(Box<Routes>),
    /// Everything comes from a recording; nobody is ever asked.
    Recorded,
}

/// The endpoints there are. External providers are reached through the egress alone (P15).
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) local: Option<Route>,
    pub(crate) external: Vec<Route>,
}

#[derive(Debug)]
pub(crate) struct Route {
    /// `local`, or the external provider's name.
    pub(crate) provider: String,
    pub(crate) endpoint: Endpoint,
}

impl Routes {
    /// P19: who may be asked, in order.
    pub(super) fn order(&self, routing: &Routing) -> Vec<&Route> {
        let external = ranked(routing, self.external.iter().map(|route| route.provider.as_str()));
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

/// The allowed ones among the providers there are: first those whose order is given, then the others as allowed.
fn ranked<'n>(routing: &'n Routing, there: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let there: Vec<&str> = there.collect();
    let allowed = &routing.allowed_external_providers;
    let mut out: Vec<&str> = Vec::new();
    for name in routing.fallback_provider_order.iter().chain(allowed) {
        let name = name.as_str();
        if there.contains(&name) && allowed.iter().any(|allowed| allowed == name) && !out.contains(&name) {
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

    /// P19: order by preference; what nobody allowed is never asked.
    #[test]
    fn only_allowed_providers_are_asked_and_in_the_order_wished() {
        let there = ["alpha", "beta", "gamma"];
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
            assert_eq!(ranked(&routing, there.into_iter()), expected, "{allowed:?} {order:?}");
        }
    }
}
