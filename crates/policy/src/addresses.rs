//! Tells globally reachable IP addresses from loopback, private and reserved ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether an address is globally reachable. An IPv6 address that embeds an IPv4 address is judged by
/// the latter.
pub fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3; within it, 2001::/23 is for protocols, 2001:db8::/32 and 3fff::/20 for
    // documentation.
    let [first, second, ..] = address.segments();
    let is_protocol_range = first == 0x2001 && second < 0x0200;
    let is_documentation_range =
        (first == 0x2001 && second == 0x0db8) || (first == 0x3fff && second < 0x1000);
    first & 0xe000 == 0x2000 && !is_protocol_range && !is_documentation_range
}

/// Returns the IPv4 address inside a mapped, translated (64:ff9b::/96), 6to4 or Teredo address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0x2001, 0, .., high, low] => Some(join(!high, !low)),
        _ => None,
    }
}
