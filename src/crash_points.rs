//! The instants at which a process may die, by name. In debug builds a test can have the process stop at one of them and
//! kill it there; in release builds nothing of this is left.

/// Before and after everything that can be seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Read as a handoff, not claimed yet.
    Admitted,
    BeforeClaim,
    Claimed,
    BeforeAppend,
    Appended,
    BeforeModel,
    ModelAnswered,
    BeforeTool,
    ToolAnswered,
    BeforeAnswer,
    Answered,
    BeforeAck,
    Acknowledged,
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

    /// `<point>#<count>`, as in `BeforeTool#2`: where to stop. Anything else stops nowhere, and every point is told.
    const VARIABLE: &str = "CYNODE_STOP_AT";

    static STOP_AT: OnceLock<Option<String>> = OnceLock::new();
    static COUNTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

    /// Tells that this point is reached, and goes no further if it is the one.
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
