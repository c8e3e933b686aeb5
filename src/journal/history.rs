use protocol::{History, Holder};
use subjects::journal::{Claimed, Entry, Record};

/// Reads from a journal who has had the handoff.
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
