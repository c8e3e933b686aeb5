//! Nodes on the real stack: nats-server, gateway and nodes are processes, sandboxes are real.

mod crashes;
mod engines;
mod full_disk;
mod host;
mod identity;
mod jobs;
mod manager;
mod network;
mod orders;
mod stage;
mod storm;
mod takeover;
mod tools;
