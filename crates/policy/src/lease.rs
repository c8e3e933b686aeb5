//! Leases: on whose behalf an agent acts. A lease narrows what a token permits and never widens it.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

use super::{AgentKind, Facts, MemoryProfile, Pattern, TaskFacts, ids::is_id, pattern};

/// Prefix of every signed lease, with the version of the format.
const PREFIX: &str = "cyl1.";
/// Separates these signatures from others that the same key could make.
const SIGNED_AS: &[u8] = b"cynode lease\n";
/// Maximum length of a signed lease, so that it fits into a header.
pub const MAX_LEASE_BYTES: usize = 4 * 1024;

/// On whose behalf an agent acts, until when, and with which tools.
///
/// A reader that does not know a field refuses the lease, because the field may narrow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub lease_id: String,
    /// The agent type that may use the lease.
    pub agent: AgentKind,
    pub user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The handoff that the lease was issued for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<String>,
    /// Tool names, or prefixes followed by `*`. All tools of the agent type if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The memory profile of all calls under the lease. If absent, token and caller name it. The text of a
    /// lease leaves `default` out; the gateway takes the profile from its store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub profile: Option<MemoryProfile>,
    /// The node that the lease is bound to. It decides on calls itself, as far as `local` goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The public nkey of that node, which signs the audit of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How many lines the node may write to the audit of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_quota: Option<u64>,
    /// The node's own tools: for each namespace the digest of its tools, as they are pinned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub local: BTreeMap<String, String>,
    /// The digest of the access rules by which the node decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Microseconds since 1970, UTC.
    pub not_before: i64,
    /// Microseconds since 1970, UTC.
    pub expires_at: i64,
    /// The public nkey that signed it.
    pub key: String,
}

/// Why a text is not a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLease {
    #[error("the lease cannot be read")]
    Malformed,
    #[error("the signature of the lease is not valid")]
    Signature,
}

impl Lease {
    /// Signs the lease with a key of the gateway. Sets `key`.
    pub fn sign(mut self, key: &KeyPair) -> Result<String, nkeys::error::Error> {
        self.key = key.public_key();
        // Strings and numbers only, so serialization does not fail; an empty payload is no lease.
        let payload = BASE64URL_NOPAD.encode(&serde_json::to_vec(&self).unwrap_or_default());
        let signature = key.sign(&[SIGNED_AS, payload.as_bytes()].concat())?;
        Ok(format!("{PREFIX}{payload}.{}", BASE64URL_NOPAD.encode(&signature)))
    }

    /// Reads a lease without checking its signature, for a holder that only passes it on.
    pub fn read_unverified(text: &str) -> Result<Self, InvalidLease> {
        split(text).map(|parts| parts.lease)
    }

    /// Reads a lease that the key it names has signed. The caller decides whether to trust that key.
    pub fn read(text: &str) -> Result<Self, InvalidLease> {
        let Parts { lease, payload, signature } = split(text)?;
        let key = KeyPair::from_public_key(&lease.key).map_err(|_| InvalidLease::Signature)?;
        let signed = [SIGNED_AS, payload.as_bytes()].concat();
        key.verify(&signed, &signature).map_err(|_| InvalidLease::Signature)?;
        Ok(lease)
    }

    /// Returns whether the lease includes a tool. Tools about leases are always included, so that any lease
    /// can be renewed and given back.
    pub fn includes_tool(&self, tool: &str) -> bool {
        let listed = |patterns: &Vec<String>| patterns.iter().any(|pattern| pattern::matches(pattern, tool));
        self.tools.as_ref().is_none_or(listed) || pattern::matches("lease.*", tool)
    }

    /// Returns whether every tool that `patterns` include is included in the lease too.
    pub fn includes_patterns(&self, patterns: &[String]) -> bool {
        let is_covered = |inner: &String| {
            self.tools.iter().flatten().any(|outer| Pattern::new(outer.clone()).covers(inner))
        };
        self.tools.is_none() || patterns.iter().all(is_covered)
    }

    /// Returns what the lease itself says about the ids that it names, for a decision without the store. Its
    /// issuer has checked that they belong together.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        if let Some(project) = &self.project_id {
            facts.projects.insert(project.clone(), Some(self.user_id.clone()));
        }
        if let Some(task) = &self.task_id {
            let (user, project) = (Some(self.user_id.clone()), self.project_id.clone());
            facts.tasks.insert(task.clone(), TaskFacts { user, project });
            facts.jobs.extend(self.job_id.iter().map(|job| (job.clone(), task.clone())));
            let run = |run: &String| (run.clone(), BTreeSet::from([task.clone()]));
            facts.runs.extend(self.run_id.iter().map(run));
        }
        facts
    }

    /// Returns whether all ids are such as the store and the audit accept.
    pub fn has_valid_ids(&self) -> bool {
        let Self { project_id, task_id, run_id, job_id, handoff_id, node, holder, .. } = self;
        let optional = [project_id, task_id, run_id, job_id, handoff_id, node, holder];
        is_id(&self.user_id) && optional.into_iter().flatten().all(|id| is_id(id))
    }
}

struct Parts<'t> {
    lease: Lease,
    payload: &'t str,
    signature: Vec<u8>,
}

fn split(text: &str) -> Result<Parts<'_>, InvalidLease> {
    let read = || {
        let (payload, signature) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let json = BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?;
        let lease: Lease = serde_json::from_slice(&json).ok()?;
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
        Some(Parts { lease, payload, signature })
    };
    let parts = read().filter(|parts| text.len() <= MAX_LEASE_BYTES && parts.lease.has_valid_ids());
    parts.ok_or(InvalidLease::Malformed)
}

/// The validity of a presented lease at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStanding {
    /// The call has none.
    Absent(LeaseMode),
    Valid(Lease),
    /// Its time has not come yet.
    Early(Lease),
    /// Expired, but it can still be renewed.
    Renewable(Lease),
    Expired(Lease),
    Revoked(Lease),
    /// Unreadable, not signed by a key of this gateway, or not issued by it.
    Unknown,
}

impl LeaseStanding {
    /// Returns what a lease that the gateway issued is worth at `now`. It can be renewed until
    /// `renewable_until`. Times are in microseconds since 1970.
    pub fn at(lease: Lease, now: i64, renewable_until: i64, is_revoked: bool) -> Self {
        if is_revoked {
            Self::Revoked(lease)
        } else if now < lease.not_before {
            Self::Early(lease)
        } else if now < lease.expires_at {
            Self::Valid(lease)
        } else if now < renewable_until {
            Self::Renewable(lease)
        } else {
            Self::Expired(lease)
        }
    }

    /// Returns the lease, valid or not, for the audit.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Valid(lease)
            | Self::Early(lease)
            | Self::Renewable(lease)
            | Self::Expired(lease)
            | Self::Revoked(lease) => Some(lease),
            Self::Absent(_) | Self::Unknown => None,
        }
    }

    /// Returns the memory profile that the lease names, valid or not.
    pub fn profile(&self) -> Option<&MemoryProfile> {
        self.lease()?.profile.as_ref()
    }
}

/// Whether managers need a lease. Analysts and sandboxes always need one, unless their token is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseMode {
    #[default]
    Optional,
    Required,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease {
            lease_id: "l-1".into(),
            agent: AgentKind::ProjectManager,
            user_id: "ada".into(),
            project_id: None,
            task_id: Some("t-1".into()),
            run_id: None,
            job_id: None,
            handoff_id: None,
            tools: Some(vec!["db.task.*".into(), "web.fetch".into()]),
            profile: None,
            node: None,
            holder: None,
            audit_quota: None,
            local: BTreeMap::new(),
            rules: None,
            not_before: 5,
            expires_at: 10,
            key: String::new(),
        }
    }

    #[test]
    fn a_lease_is_read_back_only_with_its_own_signature() {
        let key = KeyPair::new_user();
        let text = lease().sign(&key).unwrap();
        assert_eq!(Lease::read(&text), Ok(Lease { key: key.public_key(), ..lease() }));
        let forged = Lease { user_id: "eve".into(), ..lease() }.sign(&KeyPair::new_user()).unwrap();
        let (payload, _) = forged.rsplit_once('.').unwrap();
        let (_, signature) = text.rsplit_once('.').unwrap();
        assert_eq!(Lease::read(&format!("{payload}.{signature}")), Err(InvalidLease::Signature));
        // Names the gateway's key, but was signed with another one.
        let claimed = Lease { key: key.public_key(), ..lease() };
        let payload = BASE64URL_NOPAD.encode(&serde_json::to_vec(&claimed).unwrap());
        let other = KeyPair::new_user().sign(&[SIGNED_AS, payload.as_bytes()].concat()).unwrap();
        let text = format!("{PREFIX}{payload}.{}", BASE64URL_NOPAD.encode(&other));
        assert_eq!(Lease::read(&text), Err(InvalidLease::Signature));
        for text in ["", "cyl1.", "cyl1..", "cyl2.e30.e30", &"x".repeat(10_000)] {
            assert_eq!(Lease::read(text), Err(InvalidLease::Malformed), "{text}");
        }
    }

    #[test]
    fn a_lease_with_an_unknown_field_or_an_invalid_id_is_refused() {
        let key = KeyPair::new_user();
        let sign = |json: serde_json::Value| {
            let payload = BASE64URL_NOPAD.encode(json.to_string().as_bytes());
            let signature = key.sign(&[SIGNED_AS, payload.as_bytes()].concat()).unwrap();
            format!("{PREFIX}{payload}.{}", BASE64URL_NOPAD.encode(&signature))
        };
        let mut json = serde_json::to_value(Lease { key: key.public_key(), ..lease() }).unwrap();
        assert!(Lease::read(&sign(json.clone())).is_ok());
        json["user_id"] = "two words".into();
        assert_eq!(Lease::read(&sign(json.clone())), Err(InvalidLease::Malformed));
        json["user_id"] = "ada".into();
        json["profile"] = "two words".into();
        assert_eq!(Lease::read(&sign(json.clone())), Err(InvalidLease::Malformed));
        json["profile"] = "team-a".into();
        assert!(Lease::read(&sign(json.clone())).is_ok_and(|lease| lease.profile.is_some()));
        json["role"] = "n-1".into();
        assert_eq!(Lease::read(&sign(json)), Err(InvalidLease::Malformed));
    }

    #[test]
    fn a_lease_without_a_node_has_the_same_text_as_before_there_were_nodes() {
        let text = serde_json::to_string(&lease()).unwrap();
        for field in ["profile", "node", "holder", "audit_quota", "local", "rules"] {
            assert!(!text.contains(&format!("\"{field}\"")), "{text}");
        }
        let bound = Lease {
            node: Some("n-1".into()),
            holder: Some(KeyPair::new_user().public_key()),
            audit_quota: Some(1000),
            local: BTreeMap::from([("files".into(), "x".repeat(43))]),
            rules: Some("x".repeat(43)),
            ..lease()
        };
        let key = KeyPair::new_user();
        let read = Lease::read(&bound.clone().sign(&key).unwrap()).unwrap();
        assert_eq!(read, Lease { key: key.public_key(), ..bound });
    }

    #[test]
    fn tools_of_a_lease_are_a_limit() {
        let lease = lease();
        for (tool, expected) in [
            ("db.task.get", true),
            ("web.fetch", true),
            ("web.fetcher", false),
            ("db.preference.get", false),
            ("lease.renew", true),
        ] {
            assert_eq!(lease.includes_tool(tool), expected, "{tool}");
        }
        for (pattern, expected) in
            [("db.task.get", true), ("db.task.*", true), ("db.*", false), ("*", false), ("web.fetch", true)]
        {
            assert_eq!(lease.includes_patterns(&[pattern.into()]), expected, "{pattern}");
        }
    }
}
