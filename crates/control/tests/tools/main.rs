//! The built-in tools of the gateway, run as the gateway runs them, on a real store: a SQLite file, and
//! PostgreSQL where `TEST_POSTGRES_URL` names a server on which databases may be created.

mod stage;

mod artifacts;
mod catalogues;
mod context;
mod effective;
mod egress;
mod help;
mod jobs;
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
