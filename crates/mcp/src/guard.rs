//! Restricts the addresses that a client may connect to.
//!
//! Names are resolved once per connection, and the addresses that are checked are the ones that are used.
//! Redirects and proxies are disabled elsewhere, so they cannot bypass the check.

use std::net::IpAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::Error;

/// Returns whether an address may be connected to.
pub type AddressFilter = fn(IpAddr) -> bool;

#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` resolves to no address that this server may use; only an administrator can install a server on \
     an internal address"
)]
struct AddressNotAllowed(String);

/// Resolves names and keeps only the addresses that the filter allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver(pub(crate) AddressFilter);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = self.0;
        Box::pin(async move {
            // The HTTP client sets the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|address| filter(address.ip())).collect();
            if allowed.is_empty() {
                return Err(AddressNotAllowed(name.as_str().to_owned()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Checks an IP address in the URL itself, which is never resolved.
pub(crate) fn check_literal(url: &reqwest::Url, filter: AddressFilter) -> Result<(), Error> {
    let host = url.host_str().unwrap_or_default();
    let literal: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    match literal {
        Some(address) if !filter(address) => Err(Error::Options(AddressNotAllowed(host.to_owned()).into())),
        _ => Ok(()),
    }
}
