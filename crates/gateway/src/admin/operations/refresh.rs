use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{NewUpstream, Upstream};
use crate::{
    admin::{Actor, Admin, Error},
    upstreams::Refreshed,
};

/// A server that was registered, and what the first look at it brought.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Added {
    pub upstream: Upstream,
    /// Nothing when it could not be asked.
    pub refreshed: Option<Refreshed>,
    /// How many of its tools were approved without a look at them.
    pub approved: usize,
    /// Why it could not be asked. It is registered all the same.
    pub problem: Option<String>,
}

impl Admin {
    /// Registers a server and asks what it offers. Its tools wait for approval, unless it is trusted.
    pub async fn add_upstream(&self, actor: &Actor, new: NewUpstream) -> Result<Added, Error> {
        self.register(actor, &new).await?;
        let (refreshed, problem) = match self.refresh(actor, &new.namespace).await {
            Ok(refreshed) => (Some(refreshed), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let approved = match (&refreshed, new.trust_first) {
            (Some(_), true) => self.trust(actor, &new.namespace).await?,
            _ => 0,
        };
        let upstream = self.get_upstream(actor, &new.namespace).await?;
        Ok(Added { upstream, refreshed, approved, problem })
    }

    /// Asks a server what it offers now.
    pub async fn refresh_upstream(&self, actor: &Actor, namespace: &str) -> Result<Refreshed, Error> {
        self.server(actor, namespace).await?;
        self.refresh(actor, namespace).await
    }

    async fn refresh(&self, actor: &Actor, namespace: &str) -> Result<Refreshed, Error> {
        let refreshed = self.upstreams.refresh(namespace).await.map_err(Error::from);
        let about = json!({ "namespace": namespace });
        self.note(actor, "admin.upstream.refresh", &about, refreshed.as_ref().err()).await?;
        refreshed
    }
}
