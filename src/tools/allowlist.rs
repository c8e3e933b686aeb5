//! The allowlist of each role.

use subjects::Role;

/// P16: which tools a role may call. The gateway enforces the same list; this one avoids calls that it would
/// deny.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowlist(Role);

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

/// Last parts of the names of tools that only read the database.
const READS: [&str; 4] = ["get", "list", "effective", "search"];

impl Allowlist {
    pub(crate) fn for_role(role: Role) -> Self {
        Self(role)
    }

    pub(crate) fn permits(self, tool: &str) -> bool {
        match self.0 {
            Role::ProjectManager => MANAGER.iter().any(|pattern| matches(pattern, tool)),
            Role::ProjectAnalyst => {
                ANALYST.iter().any(|pattern| matches(pattern, tool)) || is_database_read(tool)
            }
        }
    }

    /// Lists the permitted patterns, for the log.
    pub(crate) fn describe(self) -> String {
        match self.0 {
            Role::ProjectManager => MANAGER.join(" "),
            Role::ProjectAnalyst => {
                let reads: Vec<String> = READS.iter().map(|verb| format!("db.*.{verb}")).collect();
                format!("{} {}", reads.join(" "), ANALYST.join(" "))
            }
        }
    }
}

fn matches(pattern: &str, tool: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => tool.len() > prefix.len() && tool.starts_with(prefix),
        None => pattern == tool,
    }
}

fn is_database_read(tool: &str) -> bool {
    let mut parts = tool.split('.');
    parts.next() == Some("db")
        && parts.next_back().is_some_and(|verb| READS.contains(&verb))
        && parts.count() >= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P16: tools that the manager and the analyst may and may not call.
    #[test]
    fn roles_may_call_only_tools_on_their_allowlist() {
        let (manager, analyst) =
            (Allowlist::for_role(Role::ProjectManager), Allowlist::for_role(Role::ProjectAnalyst));
        for (tool, by_manager, by_analyst) in [
            ("db.task.create", true, false),
            ("db.task.get", true, true),
            ("db.task.dependency.list", true, true),
            ("db.task.update_status", true, false),
            ("db.preference.effective", true, true),
            ("db.finding.create", true, true),
            ("db.finding.delete", true, false),
            ("artifact.get", true, true),
            ("artifact.put", true, false),
            ("sandbox.run", true, false),
            ("web.fetch", true, true),
            ("web.post", false, false),
            ("api.call", true, true),
            ("api.callback", false, false),
            ("skills.get", true, true),
            ("skills.create", true, false),
            ("help.list", true, true),
            ("workflow.start", true, false),
            ("memory.put", false, false),
            ("shell.run", false, false),
            ("db", false, false),
            ("db.", false, false),
            ("db.get", true, false),
            ("dbx.task.get", false, false),
            ("", false, false),
        ] {
            assert_eq!(manager.permits(tool), by_manager, "manager {tool}");
            assert_eq!(analyst.permits(tool), by_analyst, "analyst {tool}");
        }
    }
}
