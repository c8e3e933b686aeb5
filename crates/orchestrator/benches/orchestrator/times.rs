//! Times of requests.

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1_000.0);
    }

    pub(crate) fn extend(&mut self, times: Self) {
        self.0.extend(times.0);
    }

    /// Returns a quantile in milliseconds.
    pub(crate) fn quantile(&mut self, share: f64) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let last = self.0.len() - 1;
        self.0[(last as f64 * share).round() as usize]
    }
}
