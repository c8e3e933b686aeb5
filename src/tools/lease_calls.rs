//! The calls that give back the lease of a handoff, renew it, and issue another one.

use std::{future::ready, sync::Arc};

use contract::{
    ToolContract,
    lease::{self, Issued},
};
use leased::{HeldLease, under_lease};

use super::{CallError, NoListener, Tools};

/// Why there is no lease for an analyst.
#[derive(Debug)]
pub(crate) enum NotIssued {
    /// The tool reported an error, or there is none.
    Failed(String),
    /// It was rejected or could not be called.
    Call(CallError),
}

impl Tools {
    /// Revokes the lease of an answered handoff, so that it cannot be used any more. A lease that was not
    /// issued for one handoff may be in use for another.
    pub(crate) async fn give_back(&self, held: &HeldLease) {
        let Some(client) = self.client.as_ref().filter(|_| held.lease.handoff_id.is_some()) else { return };
        leased::give_back(client, held).await;
    }

    /// Returns the text of a lease, renewed if it is about to expire, or if it was refused because it has.
    /// A gateway that is away is waited for, as with any call.
    pub(crate) async fn fresh_lease(
        &self,
        held: &HeldLease,
        is_expired: bool,
    ) -> Result<Arc<str>, CallError> {
        let Some(client) = self.client.as_ref() else { return Ok(held.text()) };
        let renew = || async {
            if is_expired { leased::renew(client, held).await } else { leased::fresh(client, held).await }
        };
        let name = lease::Renew::NAME;
        let renewed = self.call_with_retries(name, self.patience, renew, &NoListener, || ready(()));
        renewed.await.map(|(text, _)| text)
    }

    /// Issues a lease for an analyst under the lease of the handoff. A gateway that is away is waited for, as
    /// with any call.
    pub(crate) async fn issue_lease(
        &self,
        wanted: &lease::Issue,
        key: &str,
        held: Option<&HeldLease>,
    ) -> Result<Issued, NotIssued> {
        let no_gateway = || NotIssued::Failed("no gateway is configured".to_owned());
        let client = self.client.as_ref().ok_or_else(no_gateway)?;
        let make = || {
            under_lease(client, held, |text| async move {
                leased::send(client, wanted, Some(key), text.as_deref()).await
            })
        };
        let name = lease::Issue::NAME;
        let called = self.call_with_retries(name, self.patience, make, &NoListener, || ready(()));
        let (reply, _) = called.await.map_err(NotIssued::Call)?;
        leased::output::<lease::Issue>(reply).map_err(|why| NotIssued::Failed(why.to_string()))
    }
}
