//! Memory profiles in the decision, in every combination with agent type, origin of the tool and switches
//! (G13).

use std::sync::Arc;

use policy::{Caller, Denial, MemoryProfile, NetworkProfiles, Origin, Scope, Standing, Tool, decide};
use serde_json::Map;

use super::{Kind, Token, facts, standing};

/// Switches of a profile: not set, on, off.
const SWITCHES: [Option<bool>; 3] = [None, Some(true), Some(false)];

fn profile(name: &str) -> MemoryProfile {
    name.parse().unwrap()
}

fn standing_with(kind: Kind, profile: MemoryProfile) -> Standing {
    match standing(kind, Token::Valid) {
        Standing::Valid(caller) => Standing::Valid(Caller { profile, ..caller }),
        other => panic!("{other:?}"),
    }
}

fn tool(origin: Origin, network: Option<NetworkProfiles>) -> Tool {
    let name = if matches!(origin, Origin::Installed { .. }) { "weather.today" } else { "web.fetch" };
    Tool {
        name: name.into(),
        origin,
        enabled: true,
        scope: Scope::Both,
        quarantined: false,
        needs: Vec::new(),
        gate: None,
        network: network.map(Arc::new),
    }
}

#[test]
fn tool_that_reaches_the_network_needs_a_profile_that_may() {
    let origins = [Origin::BuiltIn, Origin::Family, Origin::Installed { owner: None }];
    let mut checked = 0;
    for kind in [Kind::Manager, Kind::Sandbox] {
        for origin in &origins {
            for of_default in SWITCHES {
                for of_team in SWITCHES {
                    let set = [("default", of_default), ("team-a", of_team)];
                    let network: NetworkProfiles =
                        set.into_iter().filter_map(|(name, on)| Some((profile(name), on?))).collect();
                    for (name, expected) in [
                        ("default", of_default.unwrap_or(true)),
                        ("team-a", of_team.unwrap_or(false)),
                        ("team-b", false),
                    ] {
                        let standing = standing_with(kind, profile(name));
                        let decide = |tool: &Tool| decide(&standing, Some(tool), &[], &Map::new(), &facts());
                        let reaching = decide(&tool(origin.clone(), Some(network.clone())));
                        let case = format!("{kind:?} {origin:?} {name} {set:?}");
                        if expected {
                            assert!(reaching.is_ok(), "{case}: {reaching:?}");
                        } else {
                            assert_eq!(reaching, Err(Denial::NetworkNotAllowed(profile(name))), "{case}");
                        }
                        // The switches are about nothing else.
                        assert!(decide(&tool(origin.clone(), None)).is_ok(), "{case}");
                        checked += 1;
                    }
                }
            }
        }
    }
    assert_eq!(checked, 2 * 3 * 9 * 3);
}

#[test]
fn denial_names_the_profile_and_its_setting() {
    let denial = Denial::NetworkNotAllowed(profile("team-a"));
    let text = denial.to_string();
    assert!(text.contains("`team-a`") && text.contains("profile.team-a.network"), "{text}");
    assert_eq!((denial.error_type(), denial.hides_the_tool()), ("network_not_allowed", false));
}
