//! Reads the claims of a handoff from its journal.

use protocol::{History, Holder};
use subjects::journal::{Claimed, Entry, Record};

/// Collects claims, releases and progress for the claim protocol.
pub(super) fn history_of(entries: &[Entry]) -> History {
    let mut history = History::default();
    for entry in entries {
        for record in &entry.records {
            match record {
                Record::Claimed(Claimed { queued, delivery, .. }) => {
                    history.add_claim(Holder { message: *queued, delivery: *delivery });
                }
                Record::Released => history.add_release(),
                _ => {}
            }
        }
        if entry.is_progress() {
            history.add_progress();
        }
    }
    history
}
