//! The filter of the audit page: form, query parameters, and match of live rows.

use maud::{Markup, html};
use subjects::audit::Row;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use audit::Filter;
use store::clock;

use crate::console::{
    components::{self, FormState, input, options},
    form::Fields,
    page::Section,
};

const AGENTS: [(&str, &str); 10] = [
    ("", "Any"),
    ("project_manager", "Project manager"),
    ("project_analyst", "Project analyst"),
    ("sandbox", "Sandbox"),
    ("orchestrator", "Orchestrator"),
    ("node", "Node"),
    ("workflow", "Workflow runner"),
    ("admin", "Administrator"),
    ("user", "User"),
    ("unknown", "Unknown"),
];
const DECISIONS: [(&str, &str); 3] = [("", "Any"), ("allow", "Allowed"), ("deny", "Denied")];
const STATUSES: [(&str, &str); 6] = [
    ("", "Any"),
    ("success", "Succeeded"),
    ("failure", "Failed"),
    ("denied", "Not run"),
    ("replayed", "Answered from the recorded result"),
    ("unknown", "Unknown"),
];
const NAMES: [&str; 10] =
    ["tool", "agent", "decision", "status", "user_id", "task_id", "subject", "lease_id", "since", "until"];

/// The rows to show, as asked for in the address.
#[derive(Debug)]
pub(super) struct AuditFilter {
    pub(super) filter: Filter,
    parameters: Vec<(&'static str, String)>,
}

impl AuditFilter {
    pub(super) fn from_fields(fields: &Fields) -> Self {
        let filter = Filter {
            tool: fields.owned("tool"),
            agent: fields.owned("agent"),
            decision: fields.owned("decision"),
            status: fields.owned("status"),
            subject: fields.owned("subject"),
            lease_id: fields.owned("lease_id"),
            user_id: fields.owned("user_id"),
            task_id: fields.owned("task_id"),
            since: fields.given("since").and_then(parse_moment),
            until: fields.given("until").and_then(parse_moment),
            before: fields.given("before").and_then(|before| before.parse().ok()),
            ..Filter::default()
        };
        let parameters = NAMES.into_iter().filter_map(|name| Some((name, fields.owned(name)?))).collect();
        Self { filter, parameters }
    }

    /// Returns an address with these parameters and `more`.
    pub(super) fn address(&self, path: &str, more: &[(&str, &str)]) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        components::address(path, &parameters.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// Returns whether a new row matches. The conditions are those of the query in the store.
    pub(super) fn matches(&self, row: &Row) -> bool {
        let Filter {
            tool, agent, decision, status, subject, user_id, task_id, lease_id, since, until, ..
        } = &self.filter;
        let equal = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| is == Some(wanted))
        };
        let tool = tool.as_deref().is_none_or(|tool| match tool.strip_suffix('*') {
            Some(beginning) => row.tool.starts_with(beginning),
            None => row.tool == tool,
        });
        tool && equal(agent, Some(&row.agent))
            && equal(decision, Some(&row.decision))
            && equal(status, Some(&row.status))
            && equal(subject, row.subject.as_deref())
            && equal(lease_id, row.lease_id.as_deref())
            && equal(user_id, row.user_id.as_deref())
            && equal(task_id, row.task_id.as_deref())
            && since.is_none_or(|since| row.created_at >= since)
            && until.is_none_or(|until| row.created_at < until)
    }

    pub(super) fn form(&self, fields: &Fields) -> Markup {
        let filled = FormState { fields, error: None };
        let text = |name: &str, kind: &str, label: &str| input(filled, (name, name), kind, label, "");
        html! {
            details .filters open[!self.parameters.is_empty()] {
                summary { "Filter" @if !self.parameters.is_empty() { " (" (self.parameters.len()) " set)" } }
                form .filter method="get" action=(Section::Audit.address()) role="search" {
                    (text("tool", "search", "Tool, such as db.*"))
                    (options(filled, "agent", "Who", "", &AGENTS))
                    (options(filled, "decision", "Decision", "", &DECISIONS))
                    (options(filled, "status", "Outcome", "", &STATUSES))
                    (text("user_id", "search", "User"))
                    (text("task_id", "search", "Task"))
                    (text("subject", "search", "Token id"))
                    (text("lease_id", "search", "Lease id"))
                    (text("since", "datetime-local", "From (UTC)"))
                    (text("until", "datetime-local", "Until (UTC)"))
                    div .actions {
                        button .button type="submit" { "Filter" }
                        @if !self.parameters.is_empty() {
                            a .button .quiet href=(Section::Audit.address()) { "Clear" }
                        }
                    }
                }
            }
        }
    }
}

/// Formats a time as a `datetime-local` field contains it, in UTC.
pub(in super::super) fn format_moment(micros: i64) -> String {
    let at = clock::from_micros(micros);
    let (hour, minute, second) = at.time().as_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}", at.date())
}

/// Parses a `datetime-local` value; browsers omit seconds that are zero.
fn parse_moment(text: &str) -> Option<i64> {
    let seconds = if text.matches(':').count() == 1 { ":00" } else { "" };
    let at = OffsetDateTime::parse(&format!("{text}{seconds}Z"), &Rfc3339).ok()?;
    Some(clock::micros(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_moments_are_parsed_back() {
        let at = 1_800_000_000_000_000;
        assert_eq!(parse_moment(&format_moment(at)), Some(at));
        assert_eq!(parse_moment("2027-01-15T08:00"), Some(at));
        assert_eq!(parse_moment("yesterday"), None);
    }
}
