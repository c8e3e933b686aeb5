//! `schedule.*`: work of users that is due at certain times.
//!
//! A slot is decided once: a transaction moves `next_at` of the schedule on and stores what became of
//! the slots in between. [`ScheduleBook`] has the rules for people, [`fire`] those for slots.
//!
//! Transactions lock the leases of a run after the run.

mod book;
mod check_payload;
mod fire;
mod give_up;
mod marks;
mod read;
mod rows;
mod start;
mod tools;

pub use timing::zone_names as time_zones;

pub use self::{book::ScheduleBook, check_payload::check_schedule_payload, read::preview_schedule};

use contract::schedule::{
    Create, Delete, EndRun, Fire, Get, List, ListUnsent, MarkSent, Preview, RunNow, Runs, Update,
};

use crate::Entry;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Create>(),
        Entry::of::<Update>(),
        Entry::of::<Get>(),
        Entry::of::<List>(),
        Entry::of::<Delete>(),
        Entry::of::<Preview>(),
        Entry::of::<RunNow>(),
        Entry::of::<Runs>(),
        Entry::of::<Fire>(),
        Entry::of::<MarkSent>(),
        Entry::of::<ListUnsent>(),
        Entry::of::<EndRun>(),
    ]
}
