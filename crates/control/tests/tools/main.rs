//! The built-in tools of the gateway, run as the gateway runs them, on a real store: a SQLite file, and a
//! PostgreSQL server that the test starts.

mod stage;

mod artifacts;
mod catalogues;
mod context;
mod effective;
mod egress;
mod help;
mod jobs;
mod lease_profiles;
mod memory;
mod nodes;
mod preferences;
mod sandbox;
mod schedule_runs;
mod schedules;
mod schemas;
mod settings;
mod skills;
mod tasks;
mod threads;
