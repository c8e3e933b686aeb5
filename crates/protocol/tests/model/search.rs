//! Breadth-first search over all states of the model.

use std::collections::HashMap;

use super::world::{Scenario, World};

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The violated rule, with the steps that lead to it.
    pub(crate) violation: Option<String>,
}

/// Visits every reachable state and stops at the first one that violates a rule. If there is none, looks for
/// states from which the work can no longer be finished.
pub(crate) fn explore(scenario: Scenario) -> Explored {
    let first = World::begin(&scenario);
    let mut numbers: HashMap<World, u32> = HashMap::from([(first, 0)]);
    let mut worlds = vec![first];
    // How each state was reached first, and every edge backwards.
    let mut reached_by: Vec<(u32, &'static str)> = vec![(0, "begin")];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut next = 0;
    while let Some(world) = worlds.get(next).copied() {
        let from = u32::try_from(next).expect("fewer states than that");
        for (step, after) in world.steps(&scenario) {
            let known = numbers.get(&after).copied();
            let to = known.unwrap_or_else(|| {
                let number = u32::try_from(worlds.len()).expect("fewer states than that");
                numbers.insert(after, number);
                worlds.push(after);
                reached_by.push((from, step));
                number
            });
            edges.push((to, from));
            if known.is_none()
                && let Some(rule) = after.violated_rule()
            {
                return violation(&worlds, &edges, &reached_by, to, rule);
            }
        }
        next += 1;
    }
    drop(numbers);
    match stuck(&worlds, &edges) {
        Some(state) => {
            violation(&worlds, &edges, &reached_by, state, "the work cannot be finished from here")
        }
        None => Explored { states: worlds.len(), steps: edges.len(), violation: None },
    }
}

/// Returns a state from which no finished state can be reached.
fn stuck(worlds: &[World], edges: &[(u32, u32)]) -> Option<u32> {
    let mut backwards: Vec<Vec<u32>> = vec![Vec::new(); worlds.len()];
    for (to, from) in edges {
        backwards[*to as usize].push(*from);
    }
    let mut finishes = vec![false; worlds.len()];
    let mut open: Vec<usize> = (0..worlds.len()).filter(|state| worlds[*state].is_finished()).collect();
    open.iter().for_each(|state| finishes[*state] = true);
    while let Some(state) = open.pop() {
        for from in std::mem::take(&mut backwards[state]) {
            if !std::mem::replace(&mut finishes[from as usize], true) {
                open.push(from as usize);
            }
        }
    }
    let state = finishes.iter().position(|finishes| !finishes)?;
    u32::try_from(state).ok()
}

fn violation(
    worlds: &[World],
    edges: &[(u32, u32)],
    reached_by: &[(u32, &'static str)],
    state: u32,
    rule: &str,
) -> Explored {
    let mut path = Vec::new();
    let mut at = state;
    while at != 0 {
        let (from, step) = reached_by[at as usize];
        path.push(step);
        at = from;
    }
    path.reverse();
    let violation = format!("{rule}, after: {}\n{:?}", path.join(", "), worlds[state as usize]);
    Explored { states: worlds.len(), steps: edges.len(), violation: Some(violation) }
}
