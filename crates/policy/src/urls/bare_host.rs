//! Reads hosts that are not part of a URL with a scheme: `10.0.0.8/x`, `localhost:8080`, `0x7f.1`.

use std::net::Ipv4Addr;

use serde_json::Number;
use url::{Host, Url};

use crate::url_glob::without_ignored;

/// From here on a number is an address outside of 0.0.0.0/8, whose hosts cannot be reached.
const MIN_ADDRESS: f64 = 16_777_216.0;
/// Longest number without a dot that may be a part of a time, a date or a ratio.
const MAX_SHORT_DIGITS: usize = 7;

/// A text read as a URL without a scheme, the way a fetcher reads it.
pub(super) struct BareHost {
    url: Url,
    /// The text may as well be a quantity, a version, a time or a date: `10`, `1.2.3`, `12:30`.
    is_quantity: bool,
    /// It is one number that is too small to be the address of a host: `10`, `0x10`.
    is_small: bool,
}

impl BareHost {
    /// Returns the hosts that fetchers may read from a text. It is more than one if a backslash ends the host
    /// for some of them, and belongs to the user name for others.
    pub(super) fn read(text: &str) -> Vec<Self> {
        let text = without_ignored(text);
        let (host, authority) = (until(&text, &['/', '\\', '?', '#']), until(&text, &['/', '?', '#']));
        let after_user = authority.rsplit_once('@').map(|(_, host)| host).filter(|_| authority != host);
        let is_whole = host.len() == text.len();
        let read = |host: &str| {
            let url = Url::parse(&format!("http://{host}")).ok()?;
            let is_small = is_small_number(host, url.host().as_ref());
            Some(Self { is_quantity: is_quantity(host, is_whole), is_small, url })
        };
        [Some(host), after_user].into_iter().flatten().filter_map(read).collect()
    }

    pub(super) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the domain, if the host has a name.
    pub(super) fn domain(&self) -> Option<&str> {
        self.url.domain()
    }

    /// Returns whether it is an IP address, in whatever notation. A number that may be a quantity is one only
    /// where hosts are expected.
    pub(super) fn is_address(&self, is_host_expected: bool) -> bool {
        match self.url.host() {
            Some(Host::Ipv4(_)) => !self.is_small && (is_host_expected || !self.is_quantity),
            Some(Host::Ipv6(_)) => true,
            Some(Host::Domain(_)) | None => false,
        }
    }
}

/// Returns the text that a fetcher makes of a number that is given as a host.
pub(super) fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(value) if value.fract() == 0.0 && value.abs() <= f64::from(u32::MAX) => format!("{value:.0}"),
        _ => number.to_string(),
    }
}

/// Returns whether a number is too small to be the address of a host.
pub(super) fn is_small(number: &Number) -> bool {
    number.as_f64().is_some_and(|value| value < MIN_ADDRESS)
}

/// Returns whether a host is one number, in whatever notation, that is too small to be the address of a host.
/// 0 is none of these: many systems take it for the machine itself.
fn is_small_number(host: &str, read: Option<&Host<&str>>) -> bool {
    let is_small = |address: Ipv4Addr| address.octets()[0] == 0 && !address.is_unspecified();
    !host.contains('.') && matches!(read, Some(Host::Ipv4(address)) if is_small(*address))
}

/// Returns whether a host may as well be a quantity: decimal digits with at most two dots. With a dot, or if
/// it is long, a port or path that follows makes it a host: `127.1:80`, `2130706433/x`.
fn is_quantity(host: &str, is_whole: bool) -> bool {
    let (number, after) = host.split_once(':').map_or((host, None), |(number, after)| (number, Some(after)));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_short = !number.contains('.') && number.len() <= MAX_SHORT_DIGITS;
    is_number && number.matches('.').count() <= 2 && (is_short || (is_whole && after.is_none()))
}

fn until<'t>(text: &'t str, ends: &[char]) -> &'t str {
    text.split(ends).next().unwrap_or_default()
}
