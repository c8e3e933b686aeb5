//! Subjects and subject patterns: built by `Display`, parsed by `FromStr`.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use async_nats::subject::ToSubject;

use crate::{HandoffId, InstanceId, JobId, Kind, NodeId, Role, job::Class};

/// A subject of the contract. `Display` builds it, `FromStr` parses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Handoffs of a kind: `pma.handoff.<kind>`, `pa.verify`.
    Handoff(Kind),
    /// The answer to a handoff to a project manager: `pma.run.<id>.completion`.
    Completion(HandoffId),
    /// The answer to a handoff to a project analyst: `pa.run.<id>.findings`.
    Findings(HandoffId),
    /// The journal of a handoff: `<role>.run.<id>.journal`.
    Journal(Role, HandoffId),
    /// Dead letters of a kind: `<role>.dead.<kind>`.
    Dead(Kind),
    /// Streamed text of the model, best effort: `pma.delta.<id>`.
    Delta(HandoffId),
    /// Progress events, best effort: `pma.event.<id>`.
    Event(HandoffId),
    /// Requests that every instance stop a handoff: `pma.cancel.<id>`.
    Cancel(HandoffId),
    /// Requests for the status of one instance: `pma.instance.<instance>`.
    Instance(InstanceId),
    /// Status announcements of instances as they start, change and stop, best effort: `pma.presence`.
    Presence,
    /// Jobs for any node of a class: `jobs.class.<class>`.
    ClassJobs(Class),
    /// Jobs for one node: `jobs.node.<node>`.
    NodeJobs(NodeId),
    /// The request that a job end: `jobs.cancel.<job>`.
    JobCancel(JobId),
    /// What a node records about a job: `job.<job>.<node>.journal`. The name of the writer is in the subject,
    /// so that NATS can confine each node to its own.
    JobJournal(JobId, NodeId),
    /// The result of a job: `job.<job>.<node>.result`.
    JobResult(JobId, NodeId),
    /// The log of a job, in chunks: `job.<job>.<node>.log`.
    JobLog(JobId, NodeId),
    /// What a node reports about itself, answered by the gateway: `node.presence.<node>`.
    NodePresence(NodeId),
    /// The audit of one lease on a node: `edge.audit.<node>.<lease>`.
    EdgeAudit(NodeId, InstanceId),
}

impl Subject {
    /// Returns the subject of the answer to a handoff of this kind.
    pub fn answer(kind: Kind, id: HandoffId) -> Self {
        match kind.role() {
            Role::ProjectManager => Self::Completion(id),
            Role::ProjectAnalyst => Self::Findings(id),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handoff(Kind::Verify) => f.write_str("pa.verify"),
            Self::Handoff(kind) => write!(f, "pma.handoff.{kind}"),
            Self::Completion(id) => write!(f, "pma.run.{id}.completion"),
            Self::Findings(id) => write!(f, "pa.run.{id}.findings"),
            Self::Journal(role, id) => write!(f, "{}.run.{id}.journal", role.prefix()),
            Self::Dead(kind) => write!(f, "{}.dead.{kind}", kind.role().prefix()),
            Self::Delta(id) => write!(f, "pma.delta.{id}"),
            Self::Event(id) => write!(f, "pma.event.{id}"),
            Self::Cancel(id) => write!(f, "pma.cancel.{id}"),
            Self::Instance(instance) => write!(f, "pma.instance.{instance}"),
            Self::Presence => f.write_str("pma.presence"),
            Self::ClassJobs(class) => write!(f, "jobs.class.{class}"),
            Self::NodeJobs(node) => write!(f, "jobs.node.{node}"),
            Self::JobCancel(job) => write!(f, "jobs.cancel.{job}"),
            Self::JobJournal(job, node) => write!(f, "job.{job}.{node}.journal"),
            Self::JobResult(job, node) => write!(f, "job.{job}.{node}.result"),
            Self::JobLog(job, node) => write!(f, "job.{job}.{node}.log"),
            Self::NodePresence(node) => write!(f, "node.presence.{node}"),
            Self::EdgeAudit(node, lease) => write!(f, "edge.audit.{node}.{lease}"),
        }
    }
}

impl ToSubject for &Subject {
    fn to_subject(&self) -> async_nats::Subject {
        render(self).into()
    }
}

/// Formats a subject into a `String` with enough capacity for every run subject. Each stored message needs
/// two of these, so reallocations would be noticeable.
fn render(text: &impl fmt::Display) -> String {
    const RUN_SUBJECT_BYTES: usize = 64;
    let mut out = String::with_capacity(RUN_SUBJECT_BYTES);
    // Writing to a `String` cannot fail.
    let _written: fmt::Result = write!(out, "{text}");
    out
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown subject `{0}`")]
pub struct UnknownSubject(String);

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        parse(text).ok_or_else(|| UnknownSubject(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Subject> {
    let (first, rest) = text.split_once('.')?;
    match first {
        "jobs" | "job" | "node" | "edge" => parse_of_nodes(first, rest),
        role => parse_of_role(role, rest),
    }
}

fn parse_of_nodes(first: &str, rest: &str) -> Option<Subject> {
    let mut tokens = rest.split('.');
    let found = match (first, tokens.next()?) {
        ("jobs", "class") => Subject::ClassJobs(tokens.next()?.parse().ok()?),
        ("jobs", "node") => Subject::NodeJobs(tokens.next()?.parse().ok()?),
        ("jobs", "cancel") => Subject::JobCancel(parse_job(tokens.next()?)?),
        ("job", job) => {
            let (job, node) = (parse_job(job)?, tokens.next()?.parse().ok()?);
            match tokens.next()? {
                "journal" => Subject::JobJournal(job, node),
                "result" => Subject::JobResult(job, node),
                "log" => Subject::JobLog(job, node),
                _ => return None,
            }
        }
        ("node", "presence") => Subject::NodePresence(tokens.next()?.parse().ok()?),
        ("edge", "audit") => Subject::EdgeAudit(tokens.next()?.parse().ok()?, tokens.next()?.parse().ok()?),
        _ => return None,
    };
    tokens.next().is_none().then_some(found)
}

fn parse_of_role(role: &str, rest: &str) -> Option<Subject> {
    let role = Role::ALL.into_iter().find(|known| known.prefix() == role)?;
    let mut tokens = rest.split('.');
    let found = match (role, tokens.next()?) {
        (Role::ProjectManager, "handoff") => {
            Subject::Handoff(parse_kind(Role::ProjectManager, tokens.next()?)?)
        }
        (Role::ProjectAnalyst, "verify") => Subject::Handoff(Kind::Verify),
        (role, "dead") => Subject::Dead(parse_kind(role, tokens.next()?)?),
        (role, "run") => {
            let id = parse_id(tokens.next()?)?;
            match (role, tokens.next()?) {
                (Role::ProjectManager, "completion") => Subject::Completion(id),
                (Role::ProjectAnalyst, "findings") => Subject::Findings(id),
                (role, "journal") => Subject::Journal(role, id),
                _ => return None,
            }
        }
        (Role::ProjectManager, "delta") => Subject::Delta(parse_id(tokens.next()?)?),
        (Role::ProjectManager, "event") => Subject::Event(parse_id(tokens.next()?)?),
        (Role::ProjectManager, "cancel") => Subject::Cancel(parse_id(tokens.next()?)?),
        (Role::ProjectManager, "instance") => Subject::Instance(tokens.next()?.parse().ok()?),
        (Role::ProjectManager, "presence") => Subject::Presence,
        _ => return None,
    };
    tokens.next().is_none().then_some(found)
}

fn parse_kind(role: Role, token: &str) -> Option<Kind> {
    token.parse().ok().filter(|kind: &Kind| kind.role() == role)
}

fn parse_id(token: &str) -> Option<HandoffId> {
    let id: HandoffId = token.parse().ok()?;
    // Refuses other spellings of the same id, such as uppercase: to the server they are different subjects.
    (id.to_string() == token).then_some(id)
}

fn parse_job(token: &str) -> Option<JobId> {
    let id: JobId = token.parse().ok()?;
    (id.to_string() == token).then_some(id)
}

/// A wildcard subject, as used by streams, consumers and subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Journal and answer of one handoff: `<role>.run.<id>.*`. Compare-and-set writes are conditional on this
    /// pattern.
    Run(Role, HandoffId),
    /// Journals and answers of all handoffs of a role: `<role>.run.*.*`.
    Runs(Role),
    /// All answers of a role: `pma.run.*.completion`, `pa.run.*.findings`.
    Answers(Role),
    /// `<role>.dead.*`
    Dead(Role),
    /// `pma.delta.*`
    Deltas,
    /// `pma.event.*`
    Events,
    /// `pma.cancel.*`
    Cancels,
    /// `jobs.class.*`
    ClassJobs,
    /// `jobs.node.*`
    NodeJobs,
    /// `jobs.cancel.*`
    JobCancels,
    /// Journal and result of one job, whichever node writes them: `job.<job>.*.*`. Compare-and-set writes are
    /// conditional on this pattern.
    JobRun(JobId),
    /// `job.*.*.journal`
    JobJournals,
    /// `job.*.*.result`
    JobResults,
    /// The log of one job, whichever node wrote it: `job.<job>.*.log`.
    JobLog(JobId),
    /// `job.*.*.log`
    JobLogs,
    /// `node.presence.*`
    NodePresences,
    /// The audit of one lease on a node: `edge.audit.<node>.<lease>`. Compare-and-set writes are conditional
    /// on this pattern.
    EdgeAudit(NodeId, InstanceId),
    /// `edge.audit.*.*`
    EdgeAudits,
}

impl From<&Pattern> for String {
    fn from(pattern: &Pattern) -> Self {
        render(pattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(role, id) => write!(f, "{}.run.{id}.*", role.prefix()),
            Self::Runs(role) => write!(f, "{}.run.*.*", role.prefix()),
            Self::Answers(Role::ProjectManager) => f.write_str("pma.run.*.completion"),
            Self::Answers(Role::ProjectAnalyst) => f.write_str("pa.run.*.findings"),
            Self::Dead(role) => write!(f, "{}.dead.*", role.prefix()),
            Self::Deltas => f.write_str("pma.delta.*"),
            Self::Events => f.write_str("pma.event.*"),
            Self::Cancels => f.write_str("pma.cancel.*"),
            Self::ClassJobs => f.write_str("jobs.class.*"),
            Self::NodeJobs => f.write_str("jobs.node.*"),
            Self::JobCancels => f.write_str("jobs.cancel.*"),
            Self::JobRun(job) => write!(f, "job.{job}.*.*"),
            Self::JobJournals => f.write_str("job.*.*.journal"),
            Self::JobResults => f.write_str("job.*.*.result"),
            Self::JobLog(job) => write!(f, "job.{job}.*.log"),
            Self::JobLogs => f.write_str("job.*.*.log"),
            Self::NodePresences => f.write_str("node.presence.*"),
            Self::EdgeAudit(node, lease) => write!(f, "edge.audit.{node}.{lease}"),
            Self::EdgeAudits => f.write_str("edge.audit.*.*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_id() -> impl Strategy<Value = HandoffId> {
        (1u128..).prop_filter_map("nil", |n| uuid::Uuid::from_u128(n).to_string().parse().ok())
    }

    fn any_subject() -> impl Strategy<Value = Subject> {
        let kind = prop::sample::select(Kind::ALL.to_vec());
        let role = prop::sample::select(Role::ALL.to_vec());
        prop_oneof![
            kind.clone().prop_map(Subject::Handoff),
            kind.prop_map(Subject::Dead),
            any_id().prop_map(Subject::Completion),
            any_id().prop_map(Subject::Findings),
            (role, any_id()).prop_map(|(role, id)| Subject::Journal(role, id)),
            any_id().prop_map(Subject::Delta),
            any_id().prop_map(Subject::Event),
            any_id().prop_map(Subject::Cancel),
            "[A-Za-z0-9_-]{1,64}".prop_map(|name| Subject::Instance(name.parse().expect("a token"))),
            Just(Subject::Presence),
            any_subject_of_nodes(),
        ]
    }

    fn any_subject_of_nodes() -> impl Strategy<Value = Subject> {
        let job = || any_id().prop_map(|id| id.to_string().parse::<JobId>().expect("a job"));
        let node = || "[a-z0-9][a-z0-9-]{0,63}".prop_map(|name| name.parse::<NodeId>().expect("a node"));
        let lease = "[A-Za-z0-9_-]{1,64}".prop_map(|id| id.parse().expect("a token"));
        let engine = prop::sample::select(crate::job::Engine::ALL.to_vec());
        prop_oneof![
            engine.prop_map(|engine| Subject::ClassJobs(Class::new(crate::PoolName::default(), engine))),
            node().prop_map(Subject::NodeJobs),
            job().prop_map(Subject::JobCancel),
            (job(), node()).prop_map(|(job, node)| Subject::JobJournal(job, node)),
            (job(), node()).prop_map(|(job, node)| Subject::JobResult(job, node)),
            (job(), node()).prop_map(|(job, node)| Subject::JobLog(job, node)),
            node().prop_map(Subject::NodePresence),
            (node(), lease).prop_map(|(node, lease)| Subject::EdgeAudit(node, lease)),
        ]
    }

    proptest! {
        #[test]
        fn printing_then_parsing_is_the_identity(subject in any_subject()) {
            prop_assert_eq!(subject.to_string().parse::<Subject>(), Ok(subject));
        }

        #[test]
        fn parsing_then_printing_is_the_identity(
            text in "(pma|pa|job|jobs|node|edge)(\\.[a-z0-9-]{1,12}){1,4}",
        ) {
            if let Ok(subject) = text.parse::<Subject>() {
                prop_assert_eq!(subject.to_string(), text);
            }
        }
    }

    /// C4: the exact subjects that an orchestrator publishes to.
    #[test]
    fn handoff_subjects_match_the_contract() {
        let names = Kind::ALL.map(|kind| Subject::Handoff(kind).to_string());
        assert_eq!(
            names,
            [
                "pma.handoff.chat",
                "pma.handoff.schedule",
                "pma.handoff.plan",
                "pma.handoff.continue",
                "pma.handoff.review",
                "pa.verify"
            ]
        );
    }

    #[test]
    fn unknown_and_malformed_subjects_are_refused() {
        for text in [
            "",
            "pma",
            "pma.",
            "pma.handoff",
            "pma.handoff.verify",
            "pma.handoff.chat.x",
            "pa.handoff.chat",
            "pa.verify.x",
            "pma.run.x.completion",
            "pma.run.00000000-0000-0000-0000-000000000000.completion",
            "pma.run.0193F2C0-0000-7000-8000-0000000000AA.completion",
            "pa.run.0193f2c0-0000-7000-8000-0000000000aa.completion",
            "pma.dead.verify",
            "pma.instance.",
            "PMA.presence",
        ] {
            assert!(text.parse::<Subject>().is_err(), "{text} was accepted");
        }
    }
}
