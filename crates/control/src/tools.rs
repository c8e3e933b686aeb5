//! The tools, one module per family: what agents call by name.

pub(crate) mod artifacts;
pub(crate) mod egress;
pub(crate) mod findings;
pub(crate) mod help;
pub(crate) mod images;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod nodes;
pub(crate) mod personas;
pub(crate) mod preferences;
pub(crate) mod projects;
pub(crate) mod sandbox;
pub(crate) mod schedules;
pub(crate) mod settings;
pub(crate) mod skills;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod workflows;

use crate::Entry;

/// Returns all built-in tools.
pub fn all() -> Vec<Entry> {
    let families = [
        help::tools(),
        leases::tools(),
        egress::tools(),
        projects::tools(),
        tasks::tools(),
        jobs::tools(),
        preferences::tools(),
        settings::tools(),
        findings::tools(),
        artifacts::tools(),
        memory::tools(),
        skills::tools(),
        personas::tools(),
        nodes::tools(),
        models::tools(),
        images::tools(),
        sandbox::tools(),
        threads::tools(),
        keys::tools(),
        schedules::tools(),
        workflows::tools(),
    ];
    families.into_iter().flatten().collect()
}
