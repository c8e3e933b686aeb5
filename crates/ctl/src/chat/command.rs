//! Parses the lines of a conversation.

use subjects::{HandoffId, ScopeId};

pub(super) const HELP: &str = "Text that you type is sent to the project manager. Commands:
  /tasks                      list the tasks in the gateway's store
  /plan GOAL                  ask the manager to plan a goal
  /schedule TEXT              send TEXT as if a schedule had fired
  /verify TASK CRITERION      ask an analyst to verify a task
  /journal [HANDOFF]          show the journal of a handoff, by default the last one
  /status                     show queues, handoffs in flight and instances
  /dead, /replay NUMBER       list dead letters, replay one
  /help, /quit
A workflow that waits for you is answered by a message too, as in: answer TASK: TEXT
Ctrl-C cancels the running handoff; at the prompt it ends the conversation.";

/// A line of the conversation: a message or a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
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

impl ChatCommand {
    /// Parses a line. Returns `None` for an empty one; an error contains an example.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, String> {
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
            "schedule" => Self::Schedule(text("a prompt")?),
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
            "replay" => Self::Replay(rest.parse().map_err(|_| needs("a number from /dead"))?),
            "help" | "?" => Self::Help,
            "quit" | "exit" | "q" => Self::Quit,
            other => return Err(format!("unknown command /{other}; /help lists all commands")),
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
    fn lines_are_parsed_into_messages_and_commands() {
        let parse = |line| ChatCommand::parse(line).unwrap();
        assert_eq!(parse("   "), None);
        assert_eq!(parse(" hello there "), Some(ChatCommand::Say("hello there".into())));
        assert_eq!(parse("/plan  Ship it"), Some(ChatCommand::Plan("Ship it".into())));
        let verify =
            ChatCommand::Verify { task_id: "docs".parse().unwrap(), criteria: vec!["it is up".into()] };
        assert_eq!(parse("/verify docs it is up"), Some(verify));
        assert_eq!(parse("/journal"), Some(ChatCommand::Journal(None)));
        assert_eq!(parse("/replay 3"), Some(ChatCommand::Replay(3)));
    }

    #[test]
    fn errors_contain_an_example() {
        assert!(ChatCommand::parse("/plan").unwrap_err().contains("/plan Publish"));
        assert!(ChatCommand::parse("/replay x").unwrap_err().contains("/replay 3"));
        assert!(ChatCommand::parse("/dance").unwrap_err().contains("/help"));
    }
}
