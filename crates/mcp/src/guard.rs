//! Where a client may connect to, decided by address at the moment of connecting.
//!
//! The addresses that are checked are those that are connected to: nothing is resolved a second time in between. Redirects are not
//! followed, and no proxy is asked.

use std::net::IpAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::Error;

/// Returns whether an address may be connected to.
pub type AddressFilter = fn(IpAddr) -> bool;

#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` resolves to no address that this server may be at; only an administrator can install a server inside"
)]
struct Inside(String);

/// Resolves names to the addresses that the filter lets pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver(pub(crate) AddressFilter);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = self.0;
        Box::pin(async move {
            // The port is put in by the client.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|address| filter(address.ip())).collect();
            if allowed.is_empty() {
                return Err(Inside(name.as_str().to_owned()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Refuses an address that is written as such: it is never resolved.
pub(crate) fn check_literal(url: &reqwest::Url, filter: AddressFilter) -> Result<(), Error> {
    let host = url.host_str().unwrap_or_default();
    let literal: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    match literal {
        Some(address) if !filter(address) => Err(Error::Options(Inside(host.to_owned()).into())),
        _ => Ok(()),
    }
}
