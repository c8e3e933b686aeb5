use subjects::{HandoffId, ScopeId};

pub(super) const HELP: &str = "Whatever you type is said to the project manager. Besides:
  /tasks                      what is in the store
  /plan GOAL                  have a goal planned into tasks
  /schedule TEXT              as if a schedule had fired
  /verify TASK CRITERION      have an analyst verify a task
  /journal [HANDOFF]          what was done, step by step; of the last one if none is named
  /status                     queues, work in flight, instances
  /dead, /replay NUMBER       what was given up, and another chance for it
  /help, /quit
Ctrl-C cancels what is being worked on, and at the prompt ends the conversation.";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    Say(String),
    Plan(String),
    Schedule(String),
    Verify { task_id: ScopeId, criteria: Vec<String> },
    Tasks,
    Journal(Option<HandoffId>),
    Status,
    Dead,
    Replay(u64),
    Help,
    Quit,
}

impl Order {
    /// `None` for an empty line; an error says how it would be right.
    pub(super) fn read(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return Ok((!line.is_empty()).then(|| Self::Say(line.to_owned())));
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let needs = |what: &str| format!("/{name} needs {what}, as in: {}", example(name));
        let text = |what: &str| if rest.is_empty() { Err(needs(what)) } else { Ok(rest.to_owned()) };
        Ok(Some(match name {
            "plan" => Self::Plan(text("a goal")?),
            "schedule" => Self::Schedule(text("what it asks for")?),
            "verify" => {
                let (task, criterion) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let task_id = task.parse().map_err(|_| needs("a task"))?;
                let criteria =
                    if criterion.is_empty() { Vec::new() } else { vec![criterion.trim().to_owned()] };
                Self::Verify { task_id, criteria }
            }
            "tasks" => Self::Tasks,
            "journal" if rest.is_empty() => Self::Journal(None),
            "journal" => Self::Journal(Some(rest.parse().map_err(|_| needs("the id of a handoff"))?)),
            "status" => Self::Status,
            "dead" => Self::Dead,
            "replay" => Self::Replay(rest.parse().map_err(|_| needs("a number of /dead"))?),
            "help" | "?" => Self::Help,
            "quit" | "exit" | "q" => Self::Quit,
            other => return Err(format!("there is no /{other}; /help lists what there is")),
        }))
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "plan" => "/plan Publish the documentation",
        "schedule" => "/schedule Check the links of the site",
        "verify" => "/verify write-the-notes the notes name every change",
        "journal" => "/journal 01890a5d-ac96-774b-bcce-b302099a8057",
        _ => "/replay 3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_they_say() {
        let read = |line| Order::read(line).unwrap();
        assert_eq!(read("   "), None);
        assert_eq!(read(" hello there "), Some(Order::Say("hello there".into())));
        assert_eq!(read("/plan  Ship it"), Some(Order::Plan("Ship it".into())));
        let verify = Order::Verify { task_id: "docs".parse().unwrap(), criteria: vec!["it is up".into()] };
        assert_eq!(read("/verify docs it is up"), Some(verify));
        assert_eq!(read("/journal"), Some(Order::Journal(None)));
        assert_eq!(read("/replay 3"), Some(Order::Replay(3)));
    }

    #[test]
    fn what_is_wrong_says_how_it_would_be_right() {
        assert!(Order::read("/plan").unwrap_err().contains("/plan Publish"));
        assert!(Order::read("/replay x").unwrap_err().contains("/replay 3"));
        assert!(Order::read("/dance").unwrap_err().contains("/help"));
    }
}
