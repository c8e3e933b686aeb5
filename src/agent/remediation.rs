//! P22: what an analyst found is applied. Criteria that are not met become a task, unless the model has dealt
//! with them itself.

use contract::{ToolContract, task};
use subjects::{Finding, ScopeId, Verdict, Verification};

use super::{WorkError, claims::Change, session::Session};

impl Session<'_> {
    /// Creates a task for each verified task with criteria that are not met. Tasks that the model changed or
    /// created something for in this turn are left to it. Adds to the answer what was done.
    pub(super) async fn remedy(&self, mut content: String, changes: &[Change]) -> Result<String, WorkError> {
        for Verification { task_id, findings, .. } in self.ledger.verifications() {
            let unmet: Vec<&Finding> = findings.iter().filter(|it| it.verdict == Verdict::NotMet).collect();
            let is_handled = changes.iter().any(|change| change.concerns(task_id.as_str()));
            if unmet.is_empty() || is_handled {
                continue;
            }
            let note = match self.create_remedy(&task_id, &unmet).await? {
                Some(name) => format!("Created the task `{name}` for what is not met."),
                None => format!("What is not met in `{task_id}` is left to do."),
            };
            content.push_str(&format!("\n\n({note})"));
        }
        Ok(content)
    }

    /// Creates the task and returns its name; `None` if that is not possible here.
    async fn create_remedy(&self, of: &ScopeId, unmet: &[&Finding]) -> Result<Option<String>, WorkError> {
        if !self.catalogue.has(task::Create::NAME) {
            return Ok(None);
        }
        let description: Vec<String> = unmet.iter().map(|finding| describe(finding)).collect();
        let wanted = task::Create {
            title: Some(title(unmet)),
            description: Some(description.join("\n")),
            acceptance_criteria: unmet.iter().map(|finding| finding.criterion.clone()).collect(),
            parent_task_id: Some(of.clone()),
            project_id: self.handoff.scope.project_id.clone(),
            ..task::Create::default()
        };
        let created = self.call(&wanted).await?;
        Ok(created.parse::<task::Task>().ok().filter(|_| !created.failed).map(|task| task.name))
    }
}

/// Names the first criterion; the others are in the description.
fn title(unmet: &[&Finding]) -> String {
    const MAX_CHARS: usize = 80;
    let first = unmet.first().map_or("", |finding| finding.criterion.as_str());
    let more = if unmet.len() > 1 { format!(" and {} more", unmet.len() - 1) } else { String::new() };
    format!("Remedy: {}{more}", first.chars().take(MAX_CHARS).collect::<String>())
}

fn describe(finding: &Finding) -> String {
    let evidence = finding.evidence.as_deref().unwrap_or("no evidence given");
    let place = finding.location.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    format!("Not met: {}\nEvidence: {evidence}{place}", finding.criterion)
}
