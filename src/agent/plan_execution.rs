//! G4: puts the steps of a plan into tasks, in order.

use std::fmt::Write as _;

use serde_json::json;
use subjects::{FinishReason, PlannedState, PlannedStep};

use super::{
    Outcome, WorkError,
    calls::task_id_in,
    session::Session,
    structured_outputs::{DraftPlan, DraftStep},
};

const CREATE: &str = "db.task.create";

/// A plan whose steps become tasks. The workflow of each task does the rest.
pub(super) struct PlanExecution<'s> {
    session: &'s Session<'s>,
    draft: DraftPlan,
    plan: Vec<PlannedStep>,
    /// The task id of each step, once the task is created.
    tasks: Vec<Option<String>>,
}

impl<'s> PlanExecution<'s> {
    pub(super) fn new(session: &'s Session<'s>, draft: DraftPlan) -> Self {
        let planned =
            |step: &DraftStep| PlannedStep { name: step.name.clone(), state: PlannedState::NotStarted };
        let plan = draft.steps.iter().map(planned).collect();
        let tasks = vec![None; draft.steps.len()];
        Self { session, draft, plan, tasks }
    }

    /// Creates one task for each step and returns the rendered plan. Stops at the first step that fails.
    /// Without the tool for creating tasks, only the plan is returned.
    pub(super) async fn run(mut self) -> Result<Outcome, WorkError> {
        self.session.ledger.set_plan(self.plan.clone());
        if !self.session.catalogue.has(CREATE) {
            let why = "The plan was not put into tasks: no tool for that is offered here.";
            return Ok(Outcome::completed(self.render(why), FinishReason::Stop));
        }
        for index in 0..self.draft.steps.len() {
            let created = self.create_task(index).await;
            self.plan[index].state = if created.is_ok() { PlannedState::Done } else { PlannedState::Failed };
            self.session.ledger.set_plan(self.plan.clone());
            self.tasks[index] = created?;
        }
        let done = match self.tasks.len() {
            1 => "One task was created.".to_owned(),
            count => format!("{count} tasks were created, in this order."),
        };
        Ok(Outcome::completed(self.render(&done), FinishReason::Stop))
    }

    /// Creates the task of a step and returns its id.
    async fn create_task(&self, index: usize) -> Result<Option<String>, WorkError> {
        let (session, scope) = (self.session, &self.session.handoff.scope);
        let (step, depends_on) = (&self.draft.steps[index], self.dependencies(index));
        let id = |value: Option<&subjects::ScopeId>| value.map(|id| json!(id));
        let arguments = session.arguments_for(
            CREATE,
            &[
                ("name", Some(json!(step.name))),
                ("title", Some(json!(step.name))),
                ("description", Some(json!(step.description))),
                ("acceptance_criteria", Some(json!(step.acceptance_criteria))),
                ("order", Some(json!(index + 1))),
                ("depends_on", (!depends_on.is_empty()).then(|| json!(depends_on))),
                ("project_id", id(scope.project_id.as_ref())),
                ("user_id", id(scope.user_id.as_ref())),
                ("parent_task_id", id(scope.task_id.as_ref())),
            ],
        );
        let returned = session.call(CREATE, arguments).await?;
        if returned.failed {
            return Err(WorkError::ToolFailed { tool: CREATE.to_owned(), why: returned.text });
        }
        Ok(returned.json().as_ref().and_then(task_id_in).map(str::to_owned))
    }

    /// Returns the task ids of the steps that this step depends on.
    fn dependencies(&self, index: usize) -> Vec<String> {
        let position = |name: &String| self.draft.steps.iter().position(|step| step.name == *name);
        let wanted = self.draft.steps[index].depends_on.iter();
        wanted.filter_map(|name| self.tasks.get(position(name)?)?.clone()).collect()
    }

    /// Renders the plan as text, followed by `end`.
    fn render(&self, end: &str) -> String {
        let mut out = format!("{}\n", self.draft.summary.trim());
        for (index, step) in self.draft.steps.iter().enumerate() {
            // Writing to a string cannot fail.
            let _written = write!(out, "\n{}. `{}`: {}", index + 1, step.name, step.description.trim());
            for criterion in &step.acceptance_criteria {
                let _written = write!(out, "\n   - {}", criterion.trim());
            }
        }
        out.push_str("\n\n");
        out.push_str(end);
        out
    }
}
