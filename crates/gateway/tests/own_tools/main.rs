//! The gateway's own tools, each run as the gateway runs it, on a real store: SQLite in a file, and PostgreSQL where
//! `TEST_POSTGRES_URL` names a server on which databases may be created.

mod stage; // a store, the tools, and callers

mod artifacts;
mod catalogues; // personas, nodes, models, images
mod effective; // preferences resolved
mod help;
mod jobs; // and findings
mod preferences;
mod schemas;
mod settings;
mod skills;
mod tasks;
