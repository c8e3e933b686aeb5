//! Adds servers and refreshes the tools that they offer.

use api::{AddedUpstream, NewUpstream, Refreshed};
use serde_json::json;

use crate::{Actor, Admin, Error};

impl Admin {
    /// Registers a server and lists its tools. They need approval, unless `trust_first` is set.
    pub(crate) async fn add_upstream(&self, actor: &Actor, new: NewUpstream) -> Result<AddedUpstream, Error> {
        self.register(actor, &new).await?;
        let (refreshed, problem) = match self.refresh(actor, &new.namespace).await {
            Ok(refreshed) => (Some(refreshed), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let approved = match (&refreshed, new.trust_first) {
            (Some(_), true) => self.approve_new_tools(actor, &new.namespace).await?,
            _ => 0,
        };
        let upstream = self.get_upstream(actor, &new.namespace).await?;
        Ok(AddedUpstream { upstream, refreshed, approved, problem })
    }

    /// Lists the tools of a server again; changed tools go to quarantine.
    pub(crate) async fn refresh_upstream(&self, actor: &Actor, namespace: &str) -> Result<Refreshed, Error> {
        self.load_server(actor, namespace).await?;
        self.refresh(actor, namespace).await
    }

    async fn refresh(&self, actor: &Actor, namespace: &str) -> Result<Refreshed, Error> {
        let refreshed = self.upstreams.refresh(namespace).await.map_err(Error::from);
        let about = json!({ "namespace": namespace });
        self.record_outcome(actor, "admin.upstream.refresh", &about, refreshed.as_ref().err()).await?;
        refreshed
    }
}
