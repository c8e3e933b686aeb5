//! G4, G10: the planner makes a plan, workers carry out its steps, the coordinator says who does which and in what
//! order.

use std::sync::atomic::{AtomicU32, Ordering};

/// Chooses workers in turn. Fair and safe when many choose at once.
#[derive(Debug)]
pub(super) struct RoundRobin {
    workers: u32,
    next: AtomicU32,
}

impl RoundRobin {
    pub(super) fn over(workers: u32) -> Self {
        Self { workers: workers.max(1), next: AtomicU32::new(0) }
    }

    pub(super) fn choose(&self) -> u32 {
        // `fetch_update` instead of a plain addition: after 2³² choices a remainder would favour some.
        let chosen = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some((next + 1) % self.workers));
        chosen.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use super::*;

    /// G10: every worker gets its share, also when many threads choose at the same time.
    #[test]
    fn the_choice_is_fair_under_concurrency() {
        let round = RoundRobin::over(3);
        assert_eq!((0..6).map(|_| round.choose()).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..3_000).map(|_| round.choose()).collect::<Vec<_>>()))
                .collect();
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for chosen in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
                *counts.entry(chosen).or_default() += 1;
            }
            counts
        });
        assert_eq!(counts, BTreeMap::from([(0, 8_000), (1, 8_000), (2, 8_000)]));
        assert_eq!(RoundRobin::over(0).choose(), 0, "nobody to choose from is one");
    }
}
