//! Schedules on real gateways whose clock the test sets: who may call what, and that each slot fires as its
//! policies say, once, whichever gateway is called and killed.

mod claims;
mod clock_changes;
mod night;
mod orchestrators;
mod rights;
mod support;
