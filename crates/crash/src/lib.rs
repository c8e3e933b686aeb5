//! Named instants at which a test kills the process. Each program has its own list of them.
//!
//! In debug builds the process can be told to stop at one of them; release builds contain none of this.

#[cfg(not(debug_assertions))]
mod stops {
    use std::fmt::Debug;

    /// Does nothing.
    #[expect(clippy::unused_async, reason = "the same as in a debug build")]
    pub async fn reach(_point: impl Debug) {}
}

#[cfg(debug_assertions)]
mod stops {
    use std::{
        collections::HashMap,
        fmt::Debug,
        sync::{Mutex, OnceLock, PoisonError},
    };

    use tracing::info;

    /// Where to stop, as `<point>#<count>`, for example `BeforeTool#2`. With any other value every point is
    /// logged and none stops.
    const VARIABLE: &str = "CYNODE_STOP_AT";

    static STOP_AT: OnceLock<Option<String>> = OnceLock::new();
    static COUNTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

    /// Logs that this point is reached, and never returns if it is the one to stop at.
    pub async fn reach(point: impl Debug) {
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

pub use stops::reach;
