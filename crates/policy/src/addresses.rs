//! Tells globally reachable IP addresses from loopback, private and reserved ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where virtual machines on Azure reach the service of their host. It lies in a public range, unlike the
/// metadata services of other clouds.
const AZURE_HOST_SERVICE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Returns whether an address is globally reachable. An IPv6 address that stands for an IPv4 address is
/// judged by the latter.
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
        || address == AZURE_HOST_SERVICE
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3; within it, 2001::/23 is for protocols (Teredo among them), 2002::/16 for
    // 6to4, 2001:db8::/32 and 3fff::/20 for documentation. Teredo and 6to4 lead to an IPv4 address through a
    // relay; both are out of use, so all of them are refused.
    let [first, second, ..] = address.segments();
    let is_protocol_range = first == 0x2001 && second < 0x0200;
    let is_documentation_range =
        (first == 0x2001 && second == 0x0db8) || (first == 0x3fff && second < 0x1000);
    first & 0xe000 == 0x2000 && first != 0x2002 && !is_protocol_range && !is_documentation_range
}

/// Returns the IPv4 address inside a mapped (::ffff:0:0/96) or translated (64:ff9b::/96) address, which is
/// what a connection to it reaches.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_public(text: &str) -> bool {
        is_public_address(text.parse().unwrap())
    }

    /// Ranges that are not global unicast, each by its first and last address.
    const INTERNAL_V4: [(&str, &str); 19] = [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        // Metadata services of clouds.
        ("169.254.169.254", "169.254.170.2"),
        ("100.100.100.200", "192.0.0.192"),
        ("168.63.129.16", "168.63.129.16"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "239.255.255.255"),
        ("240.0.0.0", "255.255.255.254"),
        ("255.255.255.255", "255.255.255.255"),
    ];

    const INTERNAL_V6: [(&str, &str); 17] = [
        ("::", "::1"),
        // Compatible with IPv4, which no host uses any more.
        ("::2", "::ffff:ffff"),
        ("::ffff:0:0:0", "::ffff:0:ffff:ffff"),
        ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
        ("100::", "100::ffff:ffff:ffff:ffff"),
        ("1fff:ffff::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002:7f00:1::", "2002:a00:1::"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("4000::", "5f00::1"),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fd00:ec2::254", "fd20:ce::254"),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];

    #[test]
    fn ranges_that_are_not_global_unicast_are_internal() {
        for (first, last) in INTERNAL_V4.into_iter().chain(INTERNAL_V6) {
            assert!(!is_public(first) && !is_public(last), "{first} to {last}");
        }
    }

    #[test]
    fn internal_ipv4_address_is_internal_in_its_mapped_and_translated_forms() {
        for (first, last) in INTERNAL_V4 {
            for address in [first, last] {
                assert!(!is_public(&format!("::ffff:{address}")), "{address}");
                assert!(!is_public(&format!("64:ff9b::{address}")), "{address}");
            }
        }
    }

    #[test]
    fn what_lies_beside_these_ranges_is_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2000::1",
            "2001:200::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "3fff:1000::1",
        ] {
            assert!(is_public(address), "{address}");
        }
    }
}
