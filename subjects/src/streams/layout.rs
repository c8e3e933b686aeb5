//! The layout: which role's messages are in which stream.

use std::time::Duration;

use async_nats::jetstream::{consumer, object_store, stream};
use serde::{Deserialize, Serialize};

use super::{
    ADVISORIES, ADVISORY_ROOT, ANSWER_RETENTION, DAY, DEAD, HANDOFFS, MAX_QUEUED, MAX_WAITING, PA_HANDOFFS,
    PA_RUNS, PA_SPILL, RUNS, SPILL, Sizing, base, consumer_name, dead, durable, mover_name,
};
use crate::{Pattern, Role, Subject, text::named_enum};

named_enum! {
    /// Which role's messages are in which stream.
    ///
    /// NATS permissions apply to whole streams: a client that may read one message by its sequence may read
    /// them all. Roles that must not see each other's work therefore need separate streams. Subjects are the
    /// same in both layouts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Layout {
        /// Both roles share one queue, one stream of runs and one bucket.
        #[default]
        Shared = "shared",
        /// Analysts have their own queue, stream of runs and bucket.
        ByRole = "by_role",
    }

    #[error("`{0}` is not a layout; it is `shared` or `by_role`")]
    pub struct UnknownLayout;
}

impl Layout {
    pub const fn other(self) -> Self {
        match self {
            Self::Shared => Self::ByRole,
            Self::ByRole => Self::Shared,
        }
    }

    /// Returns the stream in which a role's handoffs are queued.
    pub const fn handoffs(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::ByRole, Role::ProjectAnalyst) => PA_HANDOFFS,
            (Self::Shared, _) | (Self::ByRole, Role::ProjectManager) => HANDOFFS,
        }
    }

    /// Returns the stream of a role's journals and answers.
    pub const fn runs(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::ByRole, Role::ProjectAnalyst) => PA_RUNS,
            (Self::Shared, _) | (Self::ByRole, Role::ProjectManager) => RUNS,
        }
    }

    /// Returns the object-store bucket for a role's bodies that are too large for a message.
    pub const fn spill(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::ByRole, Role::ProjectAnalyst) => PA_SPILL,
            (Self::Shared, _) | (Self::ByRole, Role::ProjectManager) => SPILL,
        }
    }

    /// Returns the analysts' subjects, which are in different streams in different layouts, each with its
    /// stream in this layout.
    pub fn analyst_subjects(self) -> Vec<(String, &'static str)> {
        let role = Role::ProjectAnalyst;
        let queued = role.kinds().map(|kind| (Subject::Handoff(kind).to_string(), self.handoffs(role)));
        queued.chain([(Pattern::Runs(role).to_string(), self.runs(role))]).collect()
    }

    /// Returns the names of all streams, in order of creation.
    pub fn names(self) -> Vec<&'static str> {
        let first = || self.role_groups().iter().filter_map(|roles| roles.first());
        let queues = first().map(|role| self.handoffs(*role));
        queues.chain(first().map(|role| self.runs(*role))).chain([DEAD, ADVISORIES]).collect()
    }

    /// Returns all streams, in order of creation.
    pub fn all(self, sizing: Sizing) -> Vec<stream::Config> {
        self.streams(self.role_groups(), sizing)
    }

    /// Returns the streams that an instance of a role uses. A manager also uses the analysts' streams, since
    /// it hands off verifications and reads their findings; an analyst uses only its own.
    pub fn used_by(self, role: Role, sizing: Sizing) -> Vec<stream::Config> {
        match role {
            Role::ProjectManager => self.all(sizing),
            Role::ProjectAnalyst => {
                let own: Vec<_> =
                    self.role_groups().iter().copied().filter(|roles| roles.contains(&role)).collect();
                self.streams(&own, sizing)
            }
        }
    }

    /// Returns the configuration of the bucket named by [`Self::spill`].
    pub fn bucket(self, role: Role, sizing: Sizing) -> object_store::Config {
        object_store::Config {
            bucket: self.spill(role).to_owned(),
            description: Some("Bodies that are too large for a message.".into()),
            max_age: 30 * DAY,
            num_replicas: sizing.replicas,
            ..object_store::Config::default()
        }
    }

    /// Returns the consumer of the max-deliveries advisories of one role's consumers. Separate for each role,
    /// so that no role handles another role's handoffs.
    pub fn mover(self, role: Role) -> consumer::pull::Config {
        let queue = self.handoffs(role);
        let about = role.kinds().map(|kind| format!("{ADVISORY_ROOT}.{queue}.{}", consumer_name(kind)));
        consumer::pull::Config {
            filter_subjects: about.collect(),
            ack_wait: Duration::from_secs(30),
            max_deliver: -1,
            max_ack_pending: 1_000,
            max_waiting: MAX_WAITING,
            ..durable(mover_name(role))
        }
    }

    /// Returns the groups of roles that share streams.
    const fn role_groups(self) -> &'static [&'static [Role]] {
        match self {
            Self::Shared => &[&Role::ALL],
            Self::ByRole => &[&[Role::ProjectManager], &[Role::ProjectAnalyst]],
        }
    }

    fn streams(self, role_groups: &[&[Role]], sizing: Sizing) -> Vec<stream::Config> {
        let queues = role_groups.iter().filter_map(|roles| self.queue(roles, sizing));
        let runs = role_groups.iter().filter_map(|roles| self.runs_stream(roles, sizing));
        queues.chain(runs).chain([dead(sizing), self.advisories(sizing)]).collect()
    }

    fn queue(self, roles: &[Role], sizing: Sizing) -> Option<stream::Config> {
        let first = *roles.first()?;
        let whose = match self {
            Self::Shared => "project managers and analysts".to_owned(),
            Self::ByRole => format!("instances in the role {first}"),
        };
        let kinds = roles.iter().flat_map(|role| role.kinds());
        Some(stream::Config {
            description: Some(format!("Work for {whose}; acknowledged is removed.")),
            // Listed one by one instead of by wildcard: a subject without a consumer must not be accepted.
            subjects: kinds.map(|kind| Subject::Handoff(kind).to_string()).collect(),
            retention: stream::RetentionPolicy::WorkQueue,
            discard: stream::DiscardPolicy::New,
            max_messages: MAX_QUEUED,
            // Within this time the server drops copies with the same message id.
            duplicate_window: sizing.dedupe_window,
            allow_message_ttl: true,
            ..base(self.handoffs(first), sizing.replicas)
        })
    }

    fn runs_stream(self, roles: &[Role], sizing: Sizing) -> Option<stream::Config> {
        let first = *roles.first()?;
        Some(stream::Config {
            description: Some("Journal and the one answer of each handoff.".into()),
            subjects: roles.iter().map(|role| Pattern::Runs(*role).to_string()).collect(),
            max_age: ANSWER_RETENTION,
            duplicate_window: Duration::from_secs(120),
            ..base(self.runs(first), sizing.replicas)
        })
    }

    fn advisories(self, sizing: Sizing) -> stream::Config {
        let queues = self.role_groups().iter().filter_map(|roles| roles.first());
        stream::Config {
            description: Some(
                "The server's word on handoffs it delivered too often: the net under dead letters.".into(),
            ),
            subjects: queues.map(|role| format!("{ADVISORY_ROOT}.{}.*", self.handoffs(*role))).collect(),
            retention: stream::RetentionPolicy::WorkQueue,
            max_age: 30 * DAY,
            duplicate_window: Duration::from_secs(120),
            ..base(ADVISORIES, sizing.replicas)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SIZING: Sizing =
        Sizing { replicas: 1, ack_wait: Duration::from_secs(30), dedupe_window: Duration::from_secs(120) };

    fn names(streams: &[stream::Config]) -> Vec<&str> {
        streams.iter().map(|stream| stream.name.as_str()).collect()
    }

    /// Existing orchestrators and streams depend on these names.
    #[test]
    fn the_shared_layout_matches_the_contract() {
        let all = Layout::default().all(SIZING);
        assert_eq!(names(&all), ["CYNODE_HANDOFFS", "CYNODE_RUNS", "CYNODE_DEAD", "CYNODE_ADVISORIES"]);
        let handoffs = [
            "pma.handoff.chat",
            "pma.handoff.schedule",
            "pma.handoff.plan",
            "pma.handoff.continue",
            "pma.handoff.review",
            "pa.verify",
        ];
        assert_eq!(all[0].subjects, handoffs);
        assert_eq!(all[1].subjects, ["pma.run.*.*", "pa.run.*.*"]);
        assert_eq!(all[3].subjects, ["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.CYNODE_HANDOFFS.*"]);
    }

    #[test]
    fn an_analyst_uses_no_stream_of_the_managers() {
        let used = Layout::ByRole.used_by(Role::ProjectAnalyst, SIZING);
        assert_eq!(
            names(&used),
            ["CYNODE_PA_HANDOFFS", "CYNODE_PA_RUNS", "CYNODE_DEAD", "CYNODE_ADVISORIES"]
        );
        assert_eq!(Layout::ByRole.used_by(Role::ProjectManager, SIZING).len(), 6);
        for layout in Layout::ALL {
            assert_eq!(names(&layout.all(SIZING)), layout.names());
        }
    }

    /// Both layouts accept the same subjects, each in one stream.
    #[test]
    fn layouts_differ_only_in_streams() {
        let accepted = |layout: Layout| {
            let streams = layout.all(SIZING);
            let work = streams.iter().filter(|stream| stream.name != ADVISORIES);
            let subjects: Vec<String> = work.flat_map(|stream| stream.subjects.clone()).collect();
            let once: BTreeSet<String> = subjects.iter().cloned().collect();
            assert_eq!(once.len(), subjects.len(), "{subjects:?}");
            once
        };
        assert_eq!(accepted(Layout::Shared), accepted(Layout::ByRole));
    }

    #[test]
    fn printing_then_parsing_a_layout_is_the_identity() {
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
            assert_eq!(serde_json::to_value(layout).unwrap(), layout.as_str());
            assert_eq!(layout.other().other(), layout);
        }
        assert!("per_role".parse::<Layout>().unwrap_err().to_string().contains("`shared` or `by_role`"));
    }
}
