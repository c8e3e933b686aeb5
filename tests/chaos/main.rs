//! The promise, under fire: processes and servers die, freeze and come back at random, and at the end the books balance.

mod cluster; // three nodes, each killed in its turn
mod ledger; // what must have happened, exactly
mod storm; // workers, gateway and NATS at random
