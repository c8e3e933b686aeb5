//! Free ports.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Tests that run at the same time have slots of their own in nextest, and each slot its own ports. They are
/// below those that the system gives to connections.
const FIRST_PORT: u32 = 10_000;
const PORTS_OF_A_SLOT: u32 = 1_000;
const SLOTS: u32 = 20;

/// How many ports this process has tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// Returns a loopback port that is free at the moment, for a server that cannot choose one itself. The next
/// port is free as well.
pub fn free_port() -> u16 {
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse::<u32>().ok());
    // Without nextest all tests of a binary are one process.
    let slot = slot.unwrap_or_else(process::id) % SLOTS;
    // Each test begins elsewhere: servers of the one before may still be ending.
    let begin = process::id().wrapping_mul(7);
    let ports = std::iter::repeat_with(|| {
        let at = begin.wrapping_add(2 * TRIED.fetch_add(1, Ordering::Relaxed));
        FIRST_PORT + slot * PORTS_OF_A_SLOT + at % (PORTS_OF_A_SLOT - 1)
    });
    let ports = ports.take(PORTS_OF_A_SLOT as usize).filter_map(|port| u16::try_from(port).ok());
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    ports.into_iter().find(|port| is_free(*port) && is_free(port + 1)).expect("a free port")
}
