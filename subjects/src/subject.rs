//! Subjects and subject patterns: built by `Display`, parsed by `FromStr`.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use async_nats::subject::ToSubject;

use crate::{HandoffId, InstanceId, Kind, Role};

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
    let (role, rest) = text.split_once('.')?;
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
        ]
    }

    proptest! {
        #[test]
        fn printing_then_parsing_is_the_identity(subject in any_subject()) {
            prop_assert_eq!(subject.to_string().parse::<Subject>(), Ok(subject));
        }

        #[test]
        fn parsing_then_printing_is_the_identity(text in "(pma|pa)(\\.[a-z0-9-]{1,12}){1,4}") {
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
