//! The promise under random failures: processes and servers are killed, frozen and restarted, and at the end
//! every answer, turn and effect is counted.

mod cluster;
mod ledger;
mod storm;
