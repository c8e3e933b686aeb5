//! The last step of the tour: a goal, given by chat, that is planned, executed in sandboxes, verified and
//! done.

use std::time::Duration;

use api::{Job, JobStatus, WorkflowDetails, WorkflowStatus};
use contract::{
    finding,
    workflow::{EffectKind, StepStatus},
};
use subjects::{
    ScopeId, TaskChangeKind, Verdict,
    workflow::{Decision, ReviewDecision},
};
use tokio::time::timeout;

use super::{Tour, chat, expect, heading};
use crate::{
    cli,
    error::{Error, Exit},
    gateway::{ApiRequest, Gateway, workflows},
    print,
    up::config::{NODE, RUNNER, StackConfig},
};

/// Two commands, each a job, and what has to be seen at the end.
const GOAL: &str = "Do: write the first page with `echo '<h1>Welcome</h1>' > index.html`, then look at it \
                    with `grep -H Welcome index.html`, so that index.html has Welcome";
const SCRIPTS: usize = 2;
/// With the offline model it takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Tour<'_> {
    /// Gives the manager a goal and waits until it is done.
    pub(super) async fn reach_a_goal(&self, config: &StackConfig) -> Result<(), Error> {
        heading("A goal, by chat, until it is done");
        if self.stack.pid(NODE).is_none() {
            print::line(
                "This machine cannot sandbox, so there is no node, and the steps of a task would wait.",
            );
            return Ok(());
        }
        if self.stack.pid(RUNNER).is_none() {
            print::line("There is no runner of workflows on this machine, so tasks would wait.");
            return Ok(());
        }
        print::line(&format!("you> {GOAL}"));
        let answer = self.completed(chat(GOAL)).await?;
        let created = answer.tasks.into_iter().find(|task| task.change == TaskChangeKind::Created);
        let none = || Error::Tour("expected that the manager makes a task of the goal".to_owned());
        let task_id = created.ok_or_else(none)?.task_id;
        self.follow(config, &task_id).await?;
        let gateway = Gateway::open(&config.gateway_link())?;
        let task = task_id.as_str();
        print::line(&format!("\ncynodectl workflows show {task_id}"));
        workflows::run(&gateway, show(task, false), false).await?;
        self.check_goal(&gateway, &task_id).await?;
        print::line(&format!("In the console: {}/console/workflows/{task}", config.admin_url()));
        Ok(())
    }

    /// Returns whether the stack has what the steps of a task need.
    pub(super) fn has_workflows(&self) -> bool {
        self.stack.pid(NODE).is_some() && self.stack.pid(RUNNER).is_some()
    }

    /// Shows what happens to the workflow of a task until it is done.
    pub(super) async fn follow(&self, config: &StackConfig, task: &ScopeId) -> Result<(), Error> {
        let gateway = Gateway::open(&config.gateway_link())?;
        print::line(&format!("\ncynodectl workflows show {task} --follow"));
        let late = |_| Error::Tour(format!("the task is not done after {} s", TIMEOUT.as_secs()));
        let follow = workflows::run(&gateway, show(task.as_str(), true), false);
        let ended = timeout(TIMEOUT, follow).await.map_err(late)??;
        expect(ended == Exit::Done, "the workflow of the task is done")
    }

    /// Checks what the workflow says of itself in the store.
    async fn check_goal(&self, gateway: &Gateway, task: &ScopeId) -> Result<(), Error> {
        let path = ["workflows", task.as_str()];
        let details: WorkflowDetails = gateway.ask(ApiRequest::get(&path)).await?;
        expect(details.workflow.status == WorkflowStatus::Done, "the workflow ends as done")?;
        let steps = details.steps();
        expect(steps.len() == SCRIPTS, "each command is planned as a step")?;
        expect(steps.iter().all(|step| step.status == StepStatus::Done), "every step is done")?;
        let passed = |review: &ReviewDecision| review.decision == Decision::Pass;
        expect(
            steps.iter().all(|step| step.review.as_ref().is_some_and(passed)),
            "the result of every step is reviewed, and passes",
        )?;
        let jobs: Vec<_> = details.effects.iter().filter(|effect| effect.kind == EffectKind::Job).collect();
        expect(jobs.len() == SCRIPTS, "each step is one job")?;
        for job in jobs {
            let job: Job = gateway.ask(ApiRequest::get(&["jobs", &job.id])).await?;
            let ran = format!("the job {} has run in a sandbox of {NODE}", job.job_id);
            expect(job.node_id.as_deref() == Some(NODE) && job.status == JobStatus::Completed, &ran)?;
        }
        let list = finding::List {
            task_id: task.clone(),
            run_id: None,
            verdict: Some(Verdict::Met),
            limit: None,
            cursor: None,
        };
        let found = self.tools.call(&list, None).await?.items;
        expect(!found.is_empty(), "an analyst found that the criterion is met")?;
        let tasks = self.tools.list(Some(&super::seed::project()?)).await?;
        let done = tasks.iter().find(|it| it.task_id == task.as_str());
        expect(done.is_some_and(|it| it.status.as_str() == "completed"), "the task is completed")?;
        print::line("");
        for finding in found {
            let text = format!("An analyst found that “{}” is met: {}", finding.criterion, finding.evidence);
            print::line(&print::sanitize(&text));
        }
        Ok(())
    }
}

fn show(task: &str, follow: bool) -> cli::Workflows {
    cli::Workflows::Show { of: cli::OfTask { task: task.to_owned() }, follow }
}
