//! All tests that run the gateway as a program: one binary, because each binary costs time to link.

mod administration;
mod attacks;
mod audit_storm;
mod authorisation;
mod conformance;
mod console;
mod data_lock;
mod edge_audit;
mod egress;
mod fast_paths;
mod instances;
mod jobs;
mod keys;
mod leases;
mod memory;
mod outbox;
mod plain;
mod process;
mod profiles;
mod real_peers;
mod schedules;
mod store;
mod threads;
mod workflows;
