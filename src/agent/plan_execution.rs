//! G4: puts the steps of a plan into tasks, in order.

use std::fmt::Write as _;

use contract::{ToolContract, task};
use subjects::{FinishReason, PlannedState, PlannedStep};

use super::{
    Outcome, WorkError,
    session::Session,
    structured_outputs::{DraftPlan, DraftStep},
};

/// A plan whose steps become tasks. The workflow of each task does the rest.
pub(super) struct PlanExecution<'s> {
    session: &'s Session<'s>,
    draft: DraftPlan,
    plan: Vec<PlannedStep>,
    /// The task ids of the steps whose tasks are created.
    tasks: Vec<String>,
}

impl<'s> PlanExecution<'s> {
    pub(super) fn new(session: &'s Session<'s>, draft: DraftPlan) -> Self {
        let planned =
            |step: &DraftStep| PlannedStep { name: step.name.clone(), state: PlannedState::NotStarted };
        let plan = draft.steps.iter().map(planned).collect();
        Self { session, draft, plan, tasks: Vec::new() }
    }

    /// Creates one task for each step and returns the rendered plan. Stops at the first step that fails.
    /// Without the tool for creating tasks, only the plan is returned.
    pub(super) async fn run(mut self) -> Result<Outcome, WorkError> {
        self.session.ledger.set_plan(self.plan.clone());
        self.session.live.planned(self.plan.len());
        if !self.session.catalogue.has(task::Create::NAME) {
            let why = "The plan was not put into tasks: no tool for that is offered here.";
            return Ok(Outcome::completed(self.render(why), FinishReason::Stop));
        }
        for index in 0..self.draft.steps.len() {
            let created = self.create_task(index).await;
            self.plan[index].state = if created.is_ok() { PlannedState::Done } else { PlannedState::Failed };
            self.session.ledger.set_plan(self.plan.clone());
            self.tasks.push(created?);
        }
        let mut done = match self.tasks.len() {
            1 => "One task was created.".to_owned(),
            count => format!("{count} tasks were created, in this order."),
        };
        done.push_str(&self.start_workflows().await?);
        Ok(Outcome::completed(self.render(&done), FinishReason::Stop))
    }

    /// W7: starts the workflow of each task. One whose task depends on others waits for them. The tasks are
    /// there in any case, so a workflow that cannot be started does not fail the plan.
    async fn start_workflows(&self) -> Result<String, WorkError> {
        for (step, task) in self.draft.steps.iter().zip(&self.tasks) {
            if let Err(why) = self.session.start_workflow(task, None).await? {
                return Ok(format!(" The workflow of `{}` was not started: {why}.", step.name));
            }
        }
        Ok(match self.tasks.len() {
            1 => " Its workflow was started.".to_owned(),
            _ => " Their workflows were started; each begins when the tasks before it are done.".to_owned(),
        })
    }

    /// Creates the task of a step and returns its id.
    async fn create_task(&self, index: usize) -> Result<String, WorkError> {
        let (step, scope) = (&self.draft.steps[index], &self.session.handoff.scope);
        let new = task::Create {
            name: Some(step.name.clone()),
            title: Some(step.name.clone()),
            description: Some(step.description.clone()),
            acceptance_criteria: step.acceptance_criteria.clone(),
            order: i64::try_from(index + 1).ok(),
            depends_on: self.dependencies(index),
            project_id: scope.project_id.clone(),
            user_id: scope.user_id.clone(),
            parent_task_id: scope.task_id.clone(),
            ..task::Create::default()
        };
        Ok(self.session.call_for_output(&new).await?.task_id)
    }

    /// Returns the task ids of the steps that this step depends on.
    fn dependencies(&self, index: usize) -> Vec<String> {
        let position = |name: &String| self.draft.steps.iter().position(|step| step.name == *name);
        let wanted = self.draft.steps[index].depends_on.iter();
        wanted.filter_map(|name| self.tasks.get(position(name)?).cloned()).collect()
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
