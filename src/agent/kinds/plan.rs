use std::fmt::Write as _;

use serde_json::{Value, json};
use subjects::{FinishReason, Message, Plan, PlannedState, PlannedStep};

use crate::{
    agent::{
        Broken, Outcome,
        coordinator::RoundRobin,
        ledger::Lane,
        session::{Session, task_id_in},
        think::Manner,
        thoughts::{DraftPlan, DraftStep, PLAN},
    },
    context::defused,
    inference::Hint,
};

const CREATE: &str = "db.task.create";
/// How many workers a plan's steps are shared among.
const WORKERS: u32 = 3;

/// A goal that should become tasks.
pub(in crate::agent) async fn work(session: &mut Session<'_>, plan: &Plan) -> Result<Outcome, Broken> {
    let mut goal = format!("Goal: {}", plan.goal);
    for criterion in &plan.acceptance_criteria {
        line(&mut goal, "Acceptance criterion", criterion);
    }
    for constraint in &plan.constraints {
        line(&mut goal, "Constraint", constraint);
    }
    from_messages(session, vec![Message::user(defused(&goal))]).await
}

/// Also after a clarification: then the question and its answer are among the messages.
pub(in crate::agent) async fn from_messages(
    session: &Session<'_>,
    messages: Vec<Message>,
) -> Result<Outcome, Broken> {
    let manner =
        Manner { hint: Hint::Strong, within: session.bench.settings.think_timeout, lane: Lane::MAIN };
    let planning = session.think::<DraftPlan>(messages.clone(), PLAN, manner);
    let (draft, ()) = tokio::join!(planning, session.assess(&messages));
    let draft = draft?;
    if let Some(question) = draft.question.clone().filter(|question| !question.trim().is_empty()) {
        return Ok(Outcome::asks(question, messages));
    }
    Coordinator::new(session, draft).carry_out().await
}

/// Has the steps of a plan carried out, in their order, by workers in turn.
struct Coordinator<'s> {
    session: &'s Session<'s>,
    draft: DraftPlan,
    plan: Vec<PlannedStep>,
    /// The id of each step's task, once it has one.
    tasks: Vec<Option<String>>,
}

impl<'s> Coordinator<'s> {
    fn new(session: &'s Session<'s>, draft: DraftPlan) -> Self {
        let round = RoundRobin::over(WORKERS);
        let plan = draft
            .steps
            .iter()
            .map(|step| PlannedStep {
                name: step.name.clone(),
                worker: round.choose(),
                state: PlannedState::NotStarted,
            })
            .collect();
        let tasks = vec![None; draft.steps.len()];
        Self { session, draft, plan, tasks }
    }

    async fn carry_out(mut self) -> Result<Outcome, Broken> {
        self.session.ledger.planned(self.plan.clone());
        if !self.session.catalogue.has(CREATE) {
            let why = "The plan was not put into tasks: no tool for that is offered here.";
            return Ok(Outcome::completed(self.in_words(why), FinishReason::Stop));
        }
        for index in 0..self.draft.steps.len() {
            let created = self.create(index).await;
            let state = if created.is_ok() { PlannedState::Done } else { PlannedState::Failed };
            self.plan[index].state = state;
            self.session.ledger.planned(self.plan.clone());
            self.tasks[index] = created?;
        }
        let done = format!("{} tasks were created, in this order.", self.tasks.len());
        Ok(Outcome::completed(self.in_words(&done), FinishReason::Stop))
    }

    /// A worker's part: one step, one task.
    async fn create(&self, index: usize) -> Result<Option<String>, Broken> {
        let step = &self.draft.steps[index];
        let (session, scope) = (self.session, &self.session.handoff.scope);
        let text = |value: Option<&subjects::ScopeId>| value.map(|id| json!(id));
        let arguments = session.arguments_for(
            CREATE,
            &[
                ("name", Some(json!(step.name))),
                ("title", Some(json!(step.name))),
                ("description", Some(json!(step.description))),
                ("acceptance_criteria", Some(json!(step.acceptance_criteria))),
                ("order", Some(json!(index + 1))),
                ("depends_on", self.earlier(step)),
                ("project_id", text(scope.project_id.as_ref())),
                ("user_id", text(scope.user_id.as_ref())),
                ("parent_task_id", text(scope.task_id.as_ref())),
            ],
        );
        let returned = session.call(CREATE, arguments).await?;
        if returned.failed {
            return Err(Broken::Tool { tool: CREATE.to_owned(), why: returned.text });
        }
        Ok(returned.structured.as_ref().and_then(task_id_in).map(str::to_owned))
    }

    fn earlier(&self, step: &DraftStep) -> Option<Value> {
        let position = |name: &String| self.draft.steps.iter().position(|step| step.name == *name);
        let ids: Vec<&String> =
            step.depends_on.iter().filter_map(|name| self.tasks.get(position(name)?)?.as_ref()).collect();
        (!ids.is_empty()).then(|| json!(ids))
    }

    fn in_words(&self, end: &str) -> String {
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

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _written = write!(out, "\n{name}: {value}");
}
