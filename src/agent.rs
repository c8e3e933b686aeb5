//! What is answered to a handoff that was accepted. It never publishes and never settles.

use std::time::Instant;

use subjects::{
    Act, ChatRole, FindingsStatus, FinishReason, Handoff, ScopeId, Status, Step, StepOutcome, Stop, Usage,
    Work,
};

use crate::inference::Offline;

/// What the work came to, before it is put into words for the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) said: Said,
    pub(crate) usage: Usage,
    pub(crate) steps: Vec<Step>,
    pub(crate) stop: Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// A manager's message.
    Message { status: Status, content: String, finish: FinishReason },
    /// An analyst's judgement.
    Judgement { task: ScopeId, status: FindingsStatus, actions: Vec<String> },
}

pub(crate) async fn work(handoff: &Handoff, model: &Offline) -> Outcome {
    let asked = match &handoff.work {
        Work::Chat(chat) => {
            let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
            last.or(chat.messages.last()).map_or(String::new(), |message| message.content.clone())
        }
        Work::Schedule(schedule) => match schedule.payload.as_str() {
            Some(prompt) => prompt.to_owned(),
            None => format!("to interpret the task of schedule {}", schedule.schedule_id),
        },
        Work::Plan(plan) => plan.goal.clone(),
        Work::Continue(input) => input.input.clone(),
        Work::Verify(verify) => return cannot_judge(&verify.task_id),
    };
    let started = Instant::now();
    let content = model.answer(&asked).await;
    let step = Step {
        index: 0,
        act: Act::Model,
        name: Offline::NAME.to_owned(),
        outcome: StepOutcome::Ok,
        ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        tries: 1,
        detail: None,
    };
    Outcome {
        said: Said::Message { status: Status::Completed, content, finish: FinishReason::Stop },
        usage: Usage { model_calls: 1, ..Usage::default() },
        steps: vec![step],
        stop: Stop::GoalMet,
    }
}

/// An analyst without a model and without tools has seen nothing, so it may judge nothing.
fn cannot_judge(task: &ScopeId) -> Outcome {
    let action =
        "Connect a model and the MCP gateway, then ask for verification again: nothing was looked at.";
    Outcome {
        said: Said::Judgement {
            task: task.clone(),
            status: FindingsStatus::NeedsClarification,
            actions: vec![action.to_owned()],
        },
        usage: Usage::default(),
        steps: Vec::new(),
        stop: Stop::NeedsClarification,
    }
}
