use async_nats::jetstream::{self, object_store};
use bytes::Bytes;
use subjects::Role;
use tokio::io::AsyncReadExt;

use crate::Broker;

const USUAL_CHUNK: usize = 128 * 1024;

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
    /// Nothing is kept under that name, and asking again does not change it.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Find(_, error) if error.kind() == object_store::GetErrorKind::NotFound)
    }
}

/// Keeps a body beside a role's streams, under a name. Storing it again under that name replaces it.
pub async fn spill(broker: &Broker, role: Role, name: &str, body: &[u8]) -> Result<(), SpillError> {
    let store = open(broker, role).await?;
    let mut body = body;
    // The client's usual piece is larger than a server with a small `max_payload` takes.
    let chunk_size = Some(USUAL_CHUNK.min(broker.client.server_info().max_payload / 2));
    let object = object_store::ObjectMetadata { name: name.to_owned(), chunk_size, ..Default::default() };
    store.put(object, &mut body).await.map_err(|source| SpillError::Put(name.to_owned(), source))?;
    Ok(())
}

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
