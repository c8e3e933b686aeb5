//! Named instants at which a test kills the process.
//!
//! In debug builds the process can be told to stop at one of them; release builds contain none of this.

/// One after each step that is visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A turn is stored, and its handoff is not published.
    TurnStored,
    /// The handoff is published, and nothing has been told to the client.
    HandoffPublished,
    /// The answer is known, and not stored in its thread.
    AnswerKnown,
    /// The answer is stored in its thread, and not told to the client.
    AnswerStored,
}

#[cfg(not(debug_assertions))]
#[expect(clippy::unused_async, reason = "the same as in a debug build")]
pub(crate) async fn reach(_point: Point) {}

#[cfg(debug_assertions)]
pub(crate) use stops::reach;

#[cfg(debug_assertions)]
mod stops {
    use std::{
        collections::HashMap,
        sync::{Mutex, OnceLock, PoisonError},
    };

    use tracing::info;

    use super::Point;

    /// Where to stop, as `<point>#<count>`, for example `TurnStored#2`. With any other value every point is
    /// logged and none stops.
    const VARIABLE: &str = "CYNODE_STOP_AT";

    static STOP_AT: OnceLock<Option<String>> = OnceLock::new();
    static COUNTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

    /// Logs that this point is reached, and never returns if it is the one to stop at.
    pub(crate) async fn reach(point: Point) {
        let Some(stop_at) = STOP_AT.get_or_init(|| std::env::var(VARIABLE).ok()) else { return };
        let name = format!("{point:?}");
        let count = {
            let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.get_or_insert_default().entry(name.clone()).or_default();
            *count += 1;
            *count
        };
        let here = format!("{name}#{count}");
        let stops = here == *stop_at;
        info!(point = here, stops, "Crash point reached.");
        if stops {
            std::future::pending::<()>().await;
        }
    }
}
