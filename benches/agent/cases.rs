//! The tasks: what they are called, what they need, what is asked, and how the result is graded.

use futures_util::future::BoxFuture;
use serde_json::Value;
use subjects::{Completion, Handoff, Status};
use testkit::Script;

use super::{create_and_read, hold_back, plan_and_verify, stage::Stage, update};

/// What a task is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Create,
    Read,
    Update,
    Plan,
    Verify,
    HoldBack,
}

impl Group {
    pub(crate) const ALL: [Self; 6] =
        [Self::Create, Self::Read, Self::Update, Self::Plan, Self::Verify, Self::HoldBack];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Plan => "plan",
            Self::Verify => "verify",
            Self::HoldBack => "hold-back",
        }
    }
}

/// A task of the benchmark.
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) group: Group,
    /// Used while instructions and prompts are worked on; the others only report.
    pub(crate) for_tuning: bool,
    pub(crate) prepare: for<'a> fn(&'a Stage, Names) -> BoxFuture<'a, Prepared>,
}

/// Says what is wrong with a result.
type Grade = Box<dyn Fn(&After) -> Result<(), String> + Send + Sync>;

/// A task with its material in the store.
pub(crate) struct Prepared {
    pub(crate) handoff: Handoff,
    /// The task that an analyst may read.
    pub(crate) verifies: Option<String>,
    /// The turns of a model without fault.
    pub(crate) ideal: Vec<Script>,
    pub(crate) grade: Grade,
}

/// What is there after the work.
pub(crate) struct After {
    pub(crate) answer: Completion,
    pub(crate) tasks: Vec<Value>,
    /// Whether the tasks are as before and the gateway permitted only calls that read.
    pub(crate) is_unchanged: bool,
    pub(crate) dependencies: usize,
}

impl After {
    pub(crate) fn text(&self) -> String {
        self.answer.message.as_ref().map(|message| message.content.to_lowercase()).unwrap_or_default()
    }

    pub(crate) fn task(&self, name: &str) -> Result<&Value, String> {
        let found = self.tasks.iter().find(|task| task["name"] == name);
        found.ok_or_else(|| format!("no task is called {name}"))
    }

    pub(crate) fn completed(&self) -> Result<(), String> {
        check(self.answer.status == Status::Completed, || format!("status {:?}", self.answer.status))
    }
}

pub(crate) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Words that differ from seed to seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) first: &'static str,
    pub(crate) second: &'static str,
    pub(crate) third: &'static str,
    /// A word that no name above has.
    pub(crate) topic: &'static str,
}

impl Names {
    pub(crate) fn of(seed: u64) -> Self {
        const ALL: [Names; 5] = [
            Names { first: "water-plants", second: "feed-cat", third: "clean-desk", topic: "invoice" },
            Names { first: "deploy-docs", second: "rotate-keys", third: "update-logo", topic: "newsletter" },
            Names { first: "fix-login", second: "write-tests", third: "paint-fence", topic: "budget" },
            Names { first: "order-paper", second: "call-plumber", third: "book-room", topic: "survey" },
            Names {
                first: "archive-logs",
                second: "renew-license",
                third: "plan-offsite",
                topic: "contract",
            },
        ];
        ALL[usize::try_from(seed).unwrap_or_default() % ALL.len()]
    }
}

pub(crate) fn all() -> Vec<Case> {
    let groups = [
        create_and_read::create(),
        create_and_read::read(),
        update::all(),
        plan_and_verify::plan(),
        plan_and_verify::verify(),
        hold_back::all(),
    ];
    groups.into_iter().flatten().collect()
}
