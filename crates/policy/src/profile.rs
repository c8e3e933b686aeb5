//! Memory profiles, and which of them may reach the network.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const DEFAULT: &str = "default";
const MAX_BYTES: usize = 64;
/// First part of the keys of system settings about profiles.
pub(super) const SETTINGS: &str = "profile";
const NETWORK_SUFFIX: &str = ".network";

/// The name of a memory profile, which every call of an agent carries (G12). A call that names none has the
/// profile `default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemoryProfile(String);

/// The text is not the name of a memory profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a memory profile has 1 to {MAX_BYTES} letters, digits, `-`, `_` and `.`, not only dots")]
pub struct InvalidProfile;

impl MemoryProfile {
    /// The key of the preference by which an administrator names the profile of a user.
    pub const USER_SETTING: &str = "profile.memory";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_default(&self) -> bool {
        self.0 == DEFAULT
    }

    /// Returns the key of the system setting that lets the profile reach the network.
    pub fn network_setting(&self) -> String {
        format!("{SETTINGS}.{self}{NETWORK_SUFFIX}")
    }

    /// Returns the profile that a system setting lets reach the network; `None` if it is no such setting.
    pub fn of_network_setting(key: &str) -> Option<Self> {
        let rest = key.strip_prefix(SETTINGS)?.strip_prefix('.')?;
        rest.strip_suffix(NETWORK_SUFFIX)?.parse().ok()
    }

    /// Returns whether the profile may reach the network unless an administrator decides otherwise. What ran
    /// before there were profiles goes on as `default`; every other profile is closed until it is opened.
    pub fn may_reach_network_by_default(&self) -> bool {
        self.is_default()
    }
}

impl Default for MemoryProfile {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

impl fmt::Display for MemoryProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MemoryProfile {
    type Err = InvalidProfile;

    fn from_str(text: &str) -> Result<Self, InvalidProfile> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // `.` and `..` mean folders, also in the address of a page.
        let has_name = text.bytes().any(|byte| byte != b'.');
        if text.len() <= MAX_BYTES && has_name && text.bytes().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidProfile)
    }
}

impl TryFrom<String> for MemoryProfile {
    type Error = InvalidProfile;

    fn try_from(text: String) -> Result<Self, InvalidProfile> {
        text.parse()
    }
}

impl From<MemoryProfile> for String {
    fn from(profile: MemoryProfile) -> Self {
        profile.0
    }
}

/// Returns whether a key is reserved for settings about profiles, in any case, also if there is no such
/// setting.
pub fn is_profile_setting(key: &str) -> bool {
    key.split('.').next().is_some_and(|first| first.eq_ignore_ascii_case(SETTINGS))
}

/// The memory profiles that an administrator has opened to the network, or closed (G13).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkProfiles(BTreeMap<MemoryProfile, bool>);

impl NetworkProfiles {
    /// Returns whether tools that are called with this profile may reach the network.
    pub fn allow(&self, profile: &MemoryProfile) -> bool {
        self.0.get(profile).copied().unwrap_or_else(|| profile.may_reach_network_by_default())
    }
}

impl FromIterator<(MemoryProfile, bool)> for NetworkProfiles {
    fn from_iter<I: IntoIterator<Item = (MemoryProfile, bool)>>(decided: I) -> Self {
        Self(decided.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_names_are_short_and_plain() {
        for good in ["default", "team-a", "a", "Team_1.b", "network", "..a", &"x".repeat(64)] {
            assert_eq!(good.parse::<MemoryProfile>().map(|it| it.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", " ", "team a", "team/a", "\u{e9}", "a\n", &"x".repeat(65)] {
            assert_eq!(bad.parse::<MemoryProfile>(), Err(InvalidProfile), "{bad:?}");
        }
    }

    #[test]
    fn every_profile_has_one_setting_and_every_setting_one_profile() {
        for name in ["default", "team-a", "network", "a.b", ".a", "x.network"] {
            let profile: MemoryProfile = name.parse().unwrap();
            let key = profile.network_setting();
            assert_eq!(MemoryProfile::of_network_setting(&key), Some(profile), "{key}");
            assert!(crate::is_governing(&key), "{key}");
        }
        for key in [
            "profile.network",
            "profile..network",
            "profile...network",
            "profile.a b.network",
            "profile.a",
            "a.network",
        ] {
            assert_eq!(MemoryProfile::of_network_setting(key), None, "{key}");
        }
    }

    #[test]
    fn profile_of_a_user_is_set_by_administrators_alone() {
        assert!(crate::is_governing(MemoryProfile::USER_SETTING));
        assert_eq!(MemoryProfile::of_network_setting(MemoryProfile::USER_SETTING), None);
    }

    #[test]
    fn only_valid_names_are_read_from_json() {
        let team: MemoryProfile = serde_json::from_str("\"team-a\"").unwrap();
        assert_eq!(serde_json::to_string(&team).unwrap(), "\"team-a\"");
        for bad in ["\"\"", "\"two words\"", "1", "null"] {
            assert!(serde_json::from_str::<MemoryProfile>(bad).is_err(), "{bad}");
        }
    }

    /// G13: `default` is open and all others are closed, until an administrator decides otherwise.
    #[test]
    fn unknown_profiles_are_closed() {
        let profile = |name: &str| name.parse::<MemoryProfile>().unwrap();
        let nothing = NetworkProfiles::default();
        assert!(nothing.allow(&MemoryProfile::default()));
        assert!(!nothing.allow(&profile("team-a")) && !nothing.allow(&profile("Default")));
        let decided: NetworkProfiles =
            [(profile("default"), false), (profile("team-a"), true)].into_iter().collect();
        assert!(!decided.allow(&MemoryProfile::default()));
        assert!(decided.allow(&profile("team-a")) && !decided.allow(&profile("team-b")));
    }
}
