use super::{AgentKind, pattern::matches, tool::Origin};

/// Families of tool names that mean something to us. No server that somebody installs may take one of them, so what is
/// under them is ours or was put there by an administrator.
pub const FAMILIES: [&str; 15] = [
    "admin",
    "api",
    "artifact",
    "connector",
    "db",
    "git",
    "help",
    "memory",
    "model",
    "node",
    "persona",
    "sandbox",
    "skills",
    "web",
    "workflow",
];

/// P16.
const MANAGER: [&str; 14] = [
    "db.*",
    "node.*",
    "sandbox.*",
    "artifact.*",
    "model.*",
    "connector.*",
    "web.fetch",
    "web.search",
    "api.call",
    "git.*",
    "help.*",
    "skills.*",
    "persona.*",
    "workflow.*",
];

/// P16: reads, and the one thing that an analyst writes.
const ANALYST: [&str; 9] = [
    "db.finding.create",
    "artifact.get",
    "artifact.list",
    "web.fetch",
    "web.search",
    "api.call",
    "help.*",
    "skills.list",
    "skills.get",
];
const DATABASE_READS: [&str; 4] = ["get", "list", "effective", "search"];

const SANDBOX: [&str; 7] =
    ["artifact.*", "memory.*", "skills.list", "skills.get", "web.*", "api.call", "help.*"];

/// Whether the list of a role has this tool. Installed tools are outside the families: whoever installed them says by
/// their scope whether managers or sandboxes may call them, and analysts, who only look, may not (M115).
pub fn allows(kind: AgentKind, tool: &str, origin: &Origin) -> bool {
    let named = |list: &[&str]| list.iter().any(|pattern| matches(pattern, tool));
    match (kind, origin) {
        (AgentKind::ProjectManager | AgentKind::Sandbox, Origin::Installed { .. }) => true,
        (AgentKind::ProjectAnalyst, Origin::Installed { .. }) => false,
        (AgentKind::ProjectManager, _) => named(&MANAGER),
        (AgentKind::ProjectAnalyst, _) => named(&ANALYST) || is_database_read(tool),
        (AgentKind::Sandbox, _) => named(&SANDBOX),
    }
}

fn is_database_read(tool: &str) -> bool {
    let mut parts = tool.split('.');
    parts.next() == Some("db")
        && parts.next_back().is_some_and(|verb| DATABASE_READS.contains(&verb))
        && parts.count() >= 1
}
