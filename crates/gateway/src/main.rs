//! `cynode-gateway`: parse, load, serve until told to stop.
fn main() {}
