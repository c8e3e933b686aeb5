//! Which hosts a job may reach: those that it names, by exact comparison, at public addresses. Internal
//! addresses only of hosts that the node's operator names in the same form.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
};

use policy::{Host, InvalidHost, NetworkHost, is_public_address};

/// How many refused connections are kept for the job's result. A job can try as many as it likes.
const MAX_REFUSED: usize = 16;

/// The hosts that a job may reach, and the connections that it was refused.
#[derive(Debug)]
pub(crate) struct Allowlist {
    hosts: Vec<NetworkHost>,
    /// Hosts that the node allows to have internal addresses.
    internal: Vec<NetworkHost>,
    refused: Mutex<Vec<String>>,
}

/// An entry that cannot be compared exactly.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("has {entry:?}: {why}")]
pub(crate) struct BadHost {
    entry: String,
    why: InvalidHost,
}

/// Why a connection is refused. The resolved address is not part of it: a job does not learn from the node
/// where internal names lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the host is not on the job's list")]
    NotListed,
    #[error("the host is an internal address, which sandbox.internal_hosts of the node does not name")]
    InternalAddress,
    #[error("the host has only internal addresses, and sandbox.internal_hosts of the node does not name it")]
    InternalName,
}

impl Allowlist {
    pub(crate) fn parse(hosts: &[String], internal: &[NetworkHost]) -> Result<Self, BadHost> {
        let parse = |entry: &String| entry.parse().map_err(|why| BadHost { entry: entry.clone(), why });
        let hosts = hosts.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { hosts, internal: internal.to_vec(), refused: Mutex::default() })
    }

    /// Returns the refused connections, each with its reason.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// Keeps a refusal for the job's result, once for each host, port and reason.
    pub(super) fn note(&self, host: &Host, port: u16, refusal: Refusal) {
        let note = format!("connection to {host}:{port} refused: {refusal}");
        let mut refused = self.lock();
        if refused.len() < MAX_REFUSED && !refused.contains(&note) {
            refused.push(note);
        }
    }

    /// Checks that the job's list names a host. An address is on it only if it is written there.
    pub(super) fn check_listed(&self, host: &Host, port: u16) -> Result<(), Refusal> {
        if names(&self.hosts, host, port) { Ok(()) } else { Err(Refusal::NotListed) }
    }

    /// Returns those of a listed host's addresses that may be connected to.
    pub(super) fn permit(
        &self,
        host: &Host,
        port: u16,
        resolved: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Vec<SocketAddr>, Refusal> {
        self.check_listed(host, port)?;
        let may_be_internal = names(&self.internal, host, port);
        let is_permitted = |address: &IpAddr| may_be_internal || is_public_address(*address);
        let permitted: Vec<_> =
            resolved.into_iter().filter(is_permitted).map(|address| SocketAddr::new(address, port)).collect();
        match host {
            _ if !permitted.is_empty() => Ok(permitted),
            Host::Address(_) => Err(Refusal::InternalAddress),
            Host::Name(_) => Err(Refusal::InternalName),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn names(entries: &[NetworkHost], host: &Host, port: u16) -> bool {
    entries.iter().any(|entry| entry.includes(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str], internal: &[&str]) -> Allowlist {
        let hosts: Vec<_> = hosts.iter().map(|&it| it.to_owned()).collect();
        let internal: Vec<_> = internal.iter().map(|it| it.parse().unwrap()).collect();
        Allowlist::parse(&hosts, &internal).unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse::<NetworkHost>().unwrap().host().clone()
    }

    /// Asks for a host that resolves to these addresses. Returns those that may be connected to.
    fn ask(list: &Allowlist, name: &str, port: u16, resolved: &[&str]) -> Result<Vec<String>, Refusal> {
        let resolved: Vec<IpAddr> = resolved.iter().map(|it| it.parse().unwrap()).collect();
        let permitted = list.permit(&host(name), port, resolved)?;
        Ok(permitted.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn only_listed_hosts_and_ports_are_reached() {
        let list = list(&["example.org", "db.example.org:5432", "1.1.1.1"], &["other.org", "10.0.0.5"]);
        for (name, port) in [("example.org", 443), ("EXAMPLE.org", 80), ("db.example.org", 5432)] {
            assert_eq!(ask(&list, name, port, &["1.0.0.1"]), Ok(vec![format!("1.0.0.1:{port}")]));
        }
        assert_eq!(ask(&list, "1.1.1.1", 443, &["1.1.1.1"]), Ok(vec!["1.1.1.1:443".to_owned()]));
        for (name, port) in [
            ("www.example.org", 443),
            ("xexample.org", 443),
            ("example.org", 22),
            ("db.example.org", 443),
            ("1.0.0.1", 443),
            ("[::ffff:1.1.1.1]", 443),
            // The node's setting opens nothing that the job does not name.
            ("other.org", 443),
            ("10.0.0.5", 443),
        ] {
            assert_eq!(ask(&list, name, port, &["1.0.0.1"]), Err(Refusal::NotListed), "{name}:{port}");
        }
    }

    #[test]
    fn internal_address_is_refused_although_the_job_lists_it() {
        for address in [
            "127.0.0.1",
            "10.0.0.5",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "[::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
        ] {
            let list = list(&[address], &[]);
            let bare = address.trim_matches(['[', ']']);
            assert_eq!(ask(&list, address, 443, &[bare]), Err(Refusal::InternalAddress), "{address}");
        }
    }

    #[test]
    fn name_with_internal_addresses_reaches_its_public_ones_only() {
        let list = list(&["example.org", "10.0.0.5"], &["10.0.0.5"]);
        let mixed = ["10.0.0.5", "1.1.1.1", "::1", "2606:4700::1111"];
        let public = ["1.1.1.1:443", "[2606:4700::1111]:443"].map(str::to_owned).to_vec();
        assert_eq!(ask(&list, "example.org", 443, &mixed), Ok(public));
        // That the address is allowed by itself does not open it to a name.
        assert_eq!(ask(&list, "example.org", 443, &["10.0.0.5"]), Err(Refusal::InternalName));
    }

    #[test]
    fn internal_host_is_reached_if_the_node_names_it_as_the_job_does() {
        let hosts = ["db.internal:5432", "db.internal:22", "localhost", "10.0.0.5:5432", "[::1]:80"];
        let list = list(&hosts, &["db.internal:5432", "10.0.0.5:5432", "127.0.0.1", "[::1]"]);
        for (name, port, address) in
            [("db.internal", 5432, "10.0.0.9"), ("10.0.0.5", 5432, "10.0.0.5"), ("[::1]", 80, "::1")]
        {
            assert!(ask(&list, name, port, &[address]).is_ok(), "{name}");
        }
        assert_eq!(ask(&list, "db.internal", 22, &["10.0.0.9"]), Err(Refusal::InternalName));
        assert_eq!(ask(&list, "localhost", 80, &["127.0.0.1"]), Err(Refusal::InternalName));
    }

    #[test]
    fn refusals_are_kept_once_and_not_without_end() {
        let list = list(&["a.org"], &[]);
        for _ in 0..2 {
            list.note(&host("[::1]"), 80, Refusal::InternalAddress);
        }
        let first = "connection to [::1]:80 refused: the host is an internal address, which \
                     sandbox.internal_hosts of the node does not name";
        assert_eq!(list.refused(), [first]);
        for port in 1..100 {
            list.note(&host("b.org"), port, Refusal::NotListed);
        }
        assert_eq!(list.refused().len(), MAX_REFUSED);
    }

    #[test]
    fn entry_that_cannot_be_compared_is_refused_by_name() {
        for entry in ["", "*.example.org", "a b", "example.org.", "example.org:0", "http://a", "a:b", "1.2"] {
            let error = Allowlist::parse(&[entry.to_owned()], &[]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("has {entry:?}: ")), "{error}");
        }
    }
}
