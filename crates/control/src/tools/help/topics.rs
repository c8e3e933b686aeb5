//! The texts of the help topics.

/// A topic that concerns more than one tool.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
}

pub(super) const TOPICS: [Topic; 10] = [
    Topic {
        name: "tasks",
        title: "Tasks, their names, statuses and dependencies",
        text: "A task has a name that people say, like `deploy-docs`; it is unique in its project, or among \
               the tasks of its user when it has no project. A name that is taken gets a number: \
               `deploy-docs-2`.\n\
               Statuses: pending, ready, running, blocked, completed, failed, canceled. The last three are \
               final. From pending and ready a task may run, block or be canceled; only a running one \
               completes. A task becomes ready or running only when everything it depends on is completed.\n\
               Cancelling a task cancels whatever depends on it, directly or not, and the answer lists those \
               tasks.",
    },
    Topic {
        name: "preferences",
        title: "Preferences, their scopes and versions",
        text: "A preference has a key, a value and a scope. For each key the narrowest scope holds: task, \
               then project, user, group, system; of several groups the last in the order of ids. A null \
               hides the values of wider scopes. An entry whose value is not of its type is passed over and \
               reported. db.preference.effective resolves all of that; db.preference.list gives the entries \
               as they are.\n\
               Every change makes a new version and is kept; also a deletion.",
    },
    Topic {
        name: "versions",
        title: "Changing what others may change too",
        text: "What can be changed has a version. Give the one you read as `expected_version`: when it has \
               changed since, nothing is changed and the error `conflict` says which version there is now. \
               Read again, then decide again.",
    },
    Topic {
        name: "lists",
        title: "Reading lists in pieces",
        text: "A list gives a piece, and `next_cursor` when there is more. Give that as `cursor` to get the \
               next piece. `limit` is at most 200; a piece may be shorter, since it is also kept small.",
    },
    Topic {
        name: "artifacts",
        title: "Files of a task",
        text: "An artifact is a file that belongs to a task, under a relative path with forward slashes. \
               artifact.put writes it whole, 1 MiB at most, as text or base64; writing to the same path \
               makes the next version. artifact.get reads it in pieces: `truncated` says that there is more, \
               `next_offset` where it goes on.",
    },
    Topic {
        name: "sandboxes",
        title: "Running commands and scripts on nodes",
        text: "sandbox.run runs a command or a script for a task, in a sandbox on a node. It starts in a \
               folder of its own with the `files` that you give, without a network unless you name hosts, \
               and within `limits`. Files that match `outputs` become artifacts of the task under their own \
               paths. With `wait_seconds` you get the job back once it has ended; else ask with \
               sandbox.job.get. `end` says how it ended: exited with a code, signalled, oom, timeout, \
               output, disk, cancelled, node_lost or engine_failed. `log_tail` is the end of what it wrote; \
               sandbox.job.logs has all of it. sandbox.job.cancel ends it.\n\
               Without a place, any node of the pool `default` takes the job. `pool` names another pool, \
               `node_id` one node, `labels` what the node must have; of several such nodes one is chosen in \
               turn. node.list shows the nodes. `waiting_because` says why a job waits.",
    },
    Topic {
        name: "workflows",
        title: "Having a task done, and what people can do meanwhile",
        text: "workflow.start has a task done: its steps are planned unless you give them, run in sandboxes, \
               and reviewed against their criteria. The task ends completed or failed. A task that waits for \
               others begins when they are completed. Starting one that is active changes nothing.\n\
               Statuses: queued, running, waiting, done, failed, cancelled. workflow.get says why one waits, \
               and which jobs and handoffs it began. One that waits for a person has a `question`: give the \
               answer with workflow.resume, or yes or no and the `question_id` where approval is asked for. \
               workflow.pause stops it until workflow.resume, workflow.cancel ends it with its task, \
               workflow.retry goes on with one that failed or was cancelled.",
    },
    Topic {
        name: "requirements",
        title: "Acceptance criteria, and how they are checked",
        text: "What is asked for is written as acceptance criteria of a task, each one answerable with yes \
               or no. A project analyst judges a task criterion by criterion: met, not_met or unclear, with \
               a passage of the task's artifacts as evidence. A finding is recorded for each \
               (db.finding.list). What is not met becomes a task below the verified one. Change criteria \
               with db.task.update: the list that you give replaces the present one.",
    },
    Topic {
        name: "gateway",
        title: "Which calls are permitted, and for whom",
        text: "Every call goes through the gateway, which decides and records it. What you may call depends \
               on your role, on switches and rules of administrators, and on the lease of your work: the \
               user on whose behalf you act, and perhaps a project, a task or certain tools. The ids of that \
               user, project and task are filled in for you; leave them out. A call that is denied stays \
               denied: do not try the same in another way, but say what is missing.",
    },
    Topic {
        name: "errors",
        title: "What the errors of tools mean",
        text: "invalid_arguments: the call was malformed, correct it once. not_found: no such thing in your \
               scope, list instead of guessing. conflict: it changed meanwhile, or its state does not allow \
               it; the message says which. too_large: over a limit. read_only: tools cannot change this. \
               malicious_content: the text of a skill was rejected. store_unavailable, \
               nats_unavailable: nothing was changed, try later.",
    },
];
