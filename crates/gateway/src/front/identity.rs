//! The caller of a request, as it was authenticated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use policy::Standing;

/// The caller of a request, for the handler of the call.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) standing: Standing,
    pub(super) revision: i64,
    pub(super) call_id: String,
    /// Set once the handler is responsible for recording the call.
    pub(super) handled: Arc<AtomicBool>,
}

impl Identity {
    /// Declares that the handler records the call from now on.
    pub(super) fn mark_handled(&self) {
        self.handled.store(true, Ordering::Release);
    }
}
