//! The allowlist of each agent type: which tools it may call at all.

use super::{AgentKind, pattern::matches, tool::Origin};

/// Reserved families of tool names. No installed upstream may use one as its namespace, so a tool in a family
/// is either built in or was put there by an administrator.
pub const FAMILIES: [&str; 20] = [
    "admin",
    "api",
    "artifact",
    "connector",
    "db",
    "egress",
    "git",
    "help",
    "key",
    "lease",
    "memory",
    "model",
    "node",
    "persona",
    "sandbox",
    "schedule",
    "skills",
    "thread",
    "web",
    "workflow",
];

/// P16: what a manager may call.
const MANAGER: [&str; 18] = [
    "db.*",
    "node.*",
    "sandbox.*",
    "artifact.*",
    "memory.*",
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
    "lease.issue",
    "lease.renew",
    "lease.revoke",
];

/// P16: tools that an analyst may call in addition to database reads. Only `db.finding.create` writes.
const ANALYST: [&str; 16] = [
    "db.finding.create",
    "artifact.get",
    "artifact.list",
    "memory.search",
    "memory.get",
    "memory.list",
    "web.fetch",
    "web.search",
    "api.call",
    "help.*",
    "skills.list",
    "skills.get",
    "sandbox.job.get",
    "sandbox.job.logs",
    "lease.renew",
    "lease.revoke",
];
/// Last parts of the names of `db.*` tools that only read.
const DATABASE_READS: [&str; 4] = ["get", "list", "effective", "search"];

const SANDBOX: [&str; 11] = [
    "artifact.*",
    "memory.*",
    "skills.list",
    "skills.get",
    "web.*",
    "api.call",
    "help.*",
    "sandbox.job.store",
    "lease.bind",
    "lease.renew",
    "lease.revoke",
];

/// An orchestrator acts for no user; it issues the leases of those who do, and keeps what users say, schedule
/// and spend.
const ORCHESTRATOR: [&str; 6] = ["lease.*", "help.*", "thread.*", "key.*", "schedule.*", "egress.*"];

/// What only a runner of workflows may call: each names the epoch with which it holds the workflow.
const RUNNER: [&str; 4] = ["workflow.lease.*", "workflow.checkpoint.*", "workflow.job", "workflow.handoff"];

/// Other tools that a runner of workflows may call.
const WORKFLOW: [&str; 1] = ["help.*"];

/// Returns whether the allowlist of an agent type names a tool. Tools of installed upstreams are in no list.
fn lists(kind: AgentKind, tool: &str) -> bool {
    let names = |list: &[&str]| list.iter().any(|pattern| matches(pattern, tool));
    match kind {
        AgentKind::ProjectManager => names(&MANAGER) && !names(&RUNNER),
        AgentKind::ProjectAnalyst => names(&ANALYST) || is_database_read(tool),
        // A node acts as the sandboxes that it runs, and only under their leases.
        AgentKind::Sandbox | AgentKind::Node => names(&SANDBOX),
        AgentKind::Orchestrator => names(&ORCHESTRATOR),
        AgentKind::Workflow => names(&RUNNER) || names(&WORKFLOW),
    }
}

/// Returns whether an agent type may call a tool, as far as its name tells. A tool in no family belongs to an
/// installed upstream, for which the gateway decides between users.
pub fn may_call(kind: AgentKind, tool: &str) -> bool {
    match tool.split_once('.') {
        Some((namespace, rest)) if !namespace.is_empty() && !rest.is_empty() => {
            let is_installed = !FAMILIES.contains(&namespace);
            allows(kind, tool, &if is_installed { Origin::Installed { owner: None } } else { Origin::Family })
        }
        _ => false,
    }
}

/// Renders the allowlist of an agent type, for the log.
pub fn describe_allowlist(kind: AgentKind) -> String {
    match kind {
        AgentKind::ProjectManager => format!("{} except {}", MANAGER.join(" "), RUNNER.join(" ")),
        AgentKind::ProjectAnalyst => {
            let reads: Vec<String> = DATABASE_READS.iter().map(|verb| format!("db.*.{verb}")).collect();
            format!("{} {}", reads.join(" "), ANALYST.join(" "))
        }
        AgentKind::Sandbox | AgentKind::Node => SANDBOX.join(" "),
        AgentKind::Orchestrator => ORCHESTRATOR.join(" "),
        AgentKind::Workflow => format!("{} {}", RUNNER.join(" "), WORKFLOW.join(" ")),
    }
}

/// Returns whether the allowlist of an agent type includes a tool.
///
/// Installed tools belong to no family. Their scope, set at installation, decides between managers and
/// sandboxes; analysts, which only read, may not call them (M115).
pub fn allows(kind: AgentKind, tool: &str, origin: &Origin) -> bool {
    match (kind, origin) {
        (AgentKind::ProjectManager | AgentKind::Sandbox | AgentKind::Node, Origin::Installed { .. }) => true,
        (
            AgentKind::ProjectAnalyst | AgentKind::Orchestrator | AgentKind::Workflow,
            Origin::Installed { .. },
        ) => false,
        (_, _) => lists(kind, tool),
    }
}

fn is_database_read(tool: &str) -> bool {
    let mut parts = tool.split('.');
    parts.next() == Some("db")
        && parts.next_back().is_some_and(|verb| DATABASE_READS.contains(&verb))
        && parts.count() >= 1
}
