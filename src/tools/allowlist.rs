//! The allowlist of a worker's role, as the gateway enforces it.

use policy::AgentKind;
use subjects::Role;

/// P16: which tools a role may call. Asking it first avoids calls that the gateway would deny.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowlist(AgentKind);

impl Allowlist {
    pub(crate) fn for_role(role: Role) -> Self {
        Self(match role {
            Role::ProjectManager => AgentKind::ProjectManager,
            Role::ProjectAnalyst => AgentKind::ProjectAnalyst,
        })
    }

    /// Returns whether the role may call a tool. Leases are the worker's own business, never the model's.
    pub(crate) fn permits(self, tool: &str) -> bool {
        policy::may_call(self.0, tool) && !tool.starts_with("lease.")
    }

    /// Lists the permitted patterns, for the log.
    pub(crate) fn describe(self) -> String {
        policy::describe_allowlist(self.0)
    }
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
            ("memory.put", true, false),
            ("memory.search", true, true),
            ("lease.issue", false, false),
            ("lease.renew", false, false),
            // Of an installed server.
            ("files.read", true, false),
            ("db", false, false),
            ("db.", false, false),
            ("db.get", true, false),
            ("dbx.task.get", true, false),
            (".run", false, false),
            ("", false, false),
        ] {
            assert_eq!(manager.permits(tool), by_manager, "manager {tool}");
            assert_eq!(analyst.permits(tool), by_analyst, "analyst {tool}");
        }
    }
}
