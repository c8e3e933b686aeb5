//! What a conversation asks for: the last message of the user, together with the message before it if the
//! last one answers a question of the offline model.

use std::borrow::Cow;

use subjects::Message;

pub(super) const WHICH_NAME: &str = "What should the task be called?";
pub(super) const WHICH_STEPS: &str = "Which steps are there?";
pub(super) const WHAT_TO_RUN: &str = "Which command should run?";
pub(super) const WHICH_TASK: &str = "Which task? Answer with its name or id: “list tasks” shows them.";
pub(super) const WHICH_TASK_RUNS: &str = "A job belongs to a task. For which task should it run? Answer with \
    the name or id of one: “list tasks” shows them, “create a task: NAME” makes one. Next time, name it at \
    once: “run in TASK: COMMAND”.";

/// The intent of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'m> {
    pub(super) text: Cow<'m, str>,
    /// The task that the user named when asked for the task of a job.
    pub(super) task: Option<&'m str>,
}

impl<'m> Asked<'m> {
    /// Reads what the last user message asks for. `command_of` returns the command that a text begins with.
    ///
    /// An answer that is a command is a new request if the question was about a task, since the user may look
    /// for the task or create it first, and if it is the same command as before, said in full.
    pub(super) fn read<C: PartialEq>(
        messages: &'m [Message],
        command_of: impl Fn(&str) -> Option<C> + Copy,
    ) -> Self {
        let last = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
        let Some(last) = last else { return Self { text: Cow::Borrowed(""), task: None } };
        let (earlier, answer) = (&messages[..last], messages[last].content().trim());
        let Some((Message::Assistant { content: question, .. }, before)) = earlier.split_last() else {
            return Self { text: Cow::Borrowed(answer), task: None };
        };
        let is = |asked: &str| question.starts_with(asked);
        let new = Self { text: Cow::Borrowed(answer), task: None };
        if ![WHICH_NAME, WHICH_STEPS, WHAT_TO_RUN, WHICH_TASK, WHICH_TASK_RUNS].into_iter().any(is) {
            return new;
        }
        let first = Self::read(before, command_of);
        let command = command_of(answer);
        let is_about_a_task = is(WHICH_TASK) || is(WHICH_TASK_RUNS);
        if command.is_some() && (is_about_a_task || command == command_of(&first.text)) {
            return new;
        }
        if is(WHICH_TASK_RUNS) {
            return Self { task: Some(answer), ..first };
        }
        let text = first.text.trim_end_matches([':', '.', '?', ' ']);
        Self { text: Cow::Owned(format!("{text}: {answer}")), task: first.task }
    }
}
