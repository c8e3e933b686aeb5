//! Bodies that are too large for a message, kept in an object store.

use async_nats::jetstream::{self, object_store};
use bytes::Bytes;
use subjects::Role;
use tokio::io::AsyncReadExt;

use crate::Broker;

const MAX_CHUNK_BYTES: usize = 128 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    #[error("opening the object store {0}")]
    Store(&'static str, #[source] jetstream::context::ObjectStoreError),
    #[error("storing the body as `{0}`")]
    Put(String, #[source] object_store::PutError),
    #[error("looking up the body `{0}`")]
    Find(String, #[source] object_store::GetError),
    #[error("reading the body `{0}`")]
    Read(String, #[source] std::io::Error),
}

impl SpillError {
    /// Returns whether there is no object of that name, so that a retry cannot succeed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Find(_, error) if error.kind() == object_store::GetErrorKind::NotFound)
    }
}

/// Stores a body in the object store of a role. An object of the same name is replaced.
pub async fn spill(broker: &Broker, role: Role, name: &str, body: &[u8]) -> Result<(), SpillError> {
    let store = open(broker, role).await?;
    let mut body = body;
    // The client's default chunk exceeds a small `max_payload` of the server.
    let chunk_size = Some(MAX_CHUNK_BYTES.min(broker.client.server_info().max_payload / 2));
    let object = object_store::ObjectMetadata { name: name.to_owned(), chunk_size, ..Default::default() };
    store.put(object, &mut body).await.map_err(|source| SpillError::Put(name.to_owned(), source))?;
    Ok(())
}

/// Returns a stored body.
pub async fn fetch(broker: &Broker, role: Role, name: &str) -> Result<Bytes, SpillError> {
    let store = open(broker, role).await?;
    let mut object = store.get(name).await.map_err(|source| SpillError::Find(name.to_owned(), source))?;
    let mut body = Vec::with_capacity(object.info().size);
    object.read_to_end(&mut body).await.map_err(|source| SpillError::Read(name.to_owned(), source))?;
    Ok(body.into())
}

async fn open(broker: &Broker, role: Role) -> Result<object_store::ObjectStore, SpillError> {
    let bucket = broker.layout.spill(role);
    broker.jetstream.get_object_store(bucket).await.map_err(|source| SpillError::Store(bucket, source))
}
