//! The words by which claims are found.

use super::ChangeKind;

/// Last segments of the names of tools that create something.
pub(super) const CREATING: [&str; 9] =
    ["create", "add", "put", "insert", "write", "register", "append", "upload", "post"];
pub(super) const CHANGING: [&str; 13] = [
    "update",
    "set",
    "delete",
    "remove",
    "cancel",
    "move",
    "rename",
    "assign",
    "update_status",
    "start",
    "pause",
    "resume",
    "retry",
];

/// Words for changes, in the forms in which answers claim them.
pub(super) const VERBS: [(&str, ChangeKind); 40] = [
    ("created", ChangeKind::Created),
    ("opened", ChangeKind::Created),
    ("made", ChangeKind::Other),
    ("archived", ChangeKind::Changed),
    ("added", ChangeKind::Created),
    ("registered", ChangeKind::Created),
    ("scheduled", ChangeKind::Created),
    ("uploaded", ChangeKind::Created),
    ("updated", ChangeKind::Changed),
    ("changed", ChangeKind::Changed),
    ("renamed", ChangeKind::Changed),
    ("marked", ChangeKind::Changed),
    ("moved", ChangeKind::Changed),
    ("closed", ChangeKind::Changed),
    ("started", ChangeKind::Changed),
    ("stopped", ChangeKind::Changed),
    ("assigned", ChangeKind::Changed),
    ("deleted", ChangeKind::Changed),
    ("removed", ChangeKind::Changed),
    ("cancelled", ChangeKind::Changed),
    ("canceled", ChangeKind::Changed),
    ("saved", ChangeKind::Changed),
    ("stored", ChangeKind::Changed),
    ("recorded", ChangeKind::Changed),
    ("set", ChangeKind::Changed),
    ("completed", ChangeKind::Changed),
    ("finished", ChangeKind::Changed),
    ("reopened", ChangeKind::Changed),
    ("verified", ChangeKind::Verified),
    ("wrote", ChangeKind::Created),
    ("written", ChangeKind::Created),
    ("issued", ChangeKind::Created),
    ("sent", ChangeKind::Created),
    ("published", ChangeKind::Created),
    ("installed", ChangeKind::Created),
    ("deployed", ChangeKind::Changed),
    ("revoked", ChangeKind::Changed),
    ("enabled", ChangeKind::Changed),
    ("disabled", ChangeKind::Changed),
    ("replaced", ChangeKind::Changed),
];
/// Verbs that say a change was made whatever they are about: "I renamed foo to bar".
pub(super) const PLAIN: [&str; 14] = [
    "archived",
    "registered",
    "scheduled",
    "uploaded",
    "renamed",
    "moved",
    "assigned",
    "deleted",
    "removed",
    "cancelled",
    "canceled",
    "revoked",
    "installed",
    "deployed",
];
/// Verbs for changes other than creation.
pub(super) const NO_CREATION: [&str; 14] = [
    "started",
    "stopped",
    "deleted",
    "removed",
    "cancelled",
    "canceled",
    "archived",
    "renamed",
    "reopened",
    "closed",
    "revoked",
    "disabled",
    "replaced",
    "moved",
];
/// States that something is in after a change: "`foo` is now done".
pub(super) const STATES: [&str; 10] =
    ["done", "open", "closed", "active", "complete", "ready", "blocked", "progress", "pending", "gone"];

/// Things that the tools change. A claim is about one of them, or about a name in quotes.
pub(super) const THINGS: [&str; 38] = [
    "it",
    "them",
    "task",
    "tasks",
    "status",
    "project",
    "projects",
    "criterion",
    "criteria",
    "dependency",
    "dependencies",
    "job",
    "jobs",
    "run",
    "runs",
    "preference",
    "preferences",
    "setting",
    "settings",
    "artifact",
    "artifacts",
    "finding",
    "findings",
    "skill",
    "store",
    "report",
    "workflow",
    "workflows",
    "file",
    "files",
    "lease",
    "leases",
    "schedule",
    "schedules",
    "deployment",
    "message",
    "email",
    "everything",
];
/// Words at the beginning of a sentence that make all of it a condition.
pub(super) const CONDITIONS: [&str; 7] = ["if", "once", "when", "until", "before", "after", "unless"];
/// Words before a verb after which it is not a claim: "will", "could".
pub(super) const NO_CLAIM: [&str; 30] = [
    "not", "no", "nothing", "never", "cannot", "can", "could", "would", "will", "shall", "should", "must",
    "may", "might", "if", "once", "when", "until", "before", "after", "unless", "to", "be", "being", "how",
    "that", "which", "who", "unable", "failed",
];
/// Words between the subject and the verb.
pub(super) const BETWEEN: [&str; 9] =
    ["have", "has", "been", "now", "just", "also", "successfully", "already", "both"];
/// Where arguments and results name what was changed.
pub(super) const NAMING: [&str; 4] = ["name", "title", "key", "task_id"];
pub(super) const NUMBERS: [&str; 9] =
    ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
