//! The files of a job: fetched before it starts, stored when it has ended, through the gateway under the
//! job's lease.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use contract::{
    artifact,
    sandbox::{MAX_PIECE_BYTES, StoreFile},
};
use data_encoding::{BASE64, HEXLOWER};
use leased::{CallFailure, HeldLease};
use mcp::Client;
use sandbox::{InputFile, Limits, OutputFile};
use sha2::{Digest, Sha256};
use subjects::{
    ScopeId,
    job::{FileContent, Job, StoredFile},
};

/// How much of an artifact is read with one call, in bytes.
const READ_BYTES: u64 = 64 * 1024;

/// Why the files of a job could not be fetched or stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The gateway is away. Another node, or a later attempt, may reach it.
    #[error("the gateway cannot be reached: {0}")]
    Away(String),
    /// The gateway does not accept this node's token. Another node has its own.
    #[error("the gateway refuses this node's token; issue a new one with `cynodectl tokens issue node`: {0}")]
    Token(String),
    /// No attempt would get further.
    #[error("{0}")]
    Refused(String),
}

/// Fetches and stores the files of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    pub(super) gateway: &'a Client,
    pub(super) lease: &'a HeldLease,
    pub(super) job: &'a Job,
    pub(super) attempt: u32,
    pub(super) patience: Duration,
}

impl Files<'_> {
    /// Returns the files that the job's folder holds when it starts.
    pub(super) async fn inputs(&self) -> Result<Vec<InputFile>, FileError> {
        self.check_sizes()?;
        let mut inputs = Vec::with_capacity(self.job.spec.files.len());
        for file in &self.job.spec.files {
            let content = match &file.content {
                FileContent::Text { text } => Bytes::from(text.clone()),
                FileContent::Base64 { base64 } => {
                    let decoded = BASE64.decode(base64.as_bytes());
                    let decoded =
                        decoded.map_err(|error| refuse(&file.path, &format!("not base64: {error}")))?;
                    Bytes::from(decoded)
                }
                FileContent::Artifact { artifact_id, sha256, size } => {
                    self.fetch(&file.path, artifact_id, sha256, *size).await?
                }
            };
            inputs.push(InputFile { path: file.path.clone(), content, executable: file.executable });
        }
        Ok(inputs)
    }

    /// Refuses files that do not fit on the job's disk or into its memory, before any is fetched: the node
    /// holds them until they are in the sandbox.
    fn check_sizes(&self) -> Result<(), FileError> {
        let (files, limits) = (&self.job.spec.files, &self.job.spec.limits);
        let bytes = files.iter().map(|file| size_of(&file.content)).fold(0, u64::saturating_add);
        if bytes > limits.disk_bytes() {
            return Err(FileError::Refused(format!(
                "the {} files of the job have {bytes} bytes, more than its disk takes: `disk_mb` is {} ({} \
                 bytes); give the job a larger `disk_mb` in `limits`, or fewer files",
                files.len(),
                limits.disk_mb,
                limits.disk_bytes(),
            )));
        }
        let memory = Limits { memory: limits.memory_bytes(), ..Limits::default() };
        let sizes = files.iter().map(|file| (file.path.as_str(), size_of(&file.content)));
        memory.memory_of_inputs(sizes).map(|_| ()).map_err(|error| FileError::Refused(error.to_string()))
    }

    async fn fetch(&self, path: &str, artifact: &str, sha256: &str, size: u64) -> Result<Bytes, FileError> {
        let id: ScopeId = artifact.parse().map_err(|_| refuse(path, "its artifact has no valid id"))?;
        let mut content = BytesMut::new();
        loop {
            let offset = content.len() as u64;
            let input = artifact::Get {
                task_id: self.job.task_id.clone(),
                artifact_id: Some(id.clone()),
                path: None,
                offset: Some(offset),
                limit: Some(READ_BYTES),
                encoding: Some(artifact::Encoding::Base64),
            };
            let key = format!("job/{}/{}/read/{artifact}/{offset}", self.job.job_id, self.attempt);
            let read = self.call(&input, &key).await.map_err(|error| error.about(path))?;
            if read.artifact.sha256 != sha256 {
                return Err(refuse(
                    path,
                    "its artifact has changed since the job was created; run the job again",
                ));
            }
            let piece = BASE64.decode(read.content.as_bytes());
            let piece = piece.map_err(|_| refuse(path, "its artifact cannot be read"))?;
            content.extend_from_slice(&piece);
            // More than was announced is refused below.
            if !read.truncated || piece.is_empty() || content.len() as u64 > size {
                break;
            }
        }
        let digest = HEXLOWER.encode(&Sha256::digest(&content));
        if digest != sha256 || content.len() as u64 != size {
            return Err(refuse(path, "its artifact arrived changed"));
        }
        Ok(content.freeze())
    }

    /// Stores a file that the job left, piece by piece. The gateway refuses one that is too large with its
    /// first piece.
    pub(super) async fn store(&self, file: &OutputFile) -> Result<StoredFile, FileError> {
        let OutputFile { path, size, sha256, .. } = file;
        let mut offset = 0;
        loop {
            let piece = file.read_piece(offset, MAX_PIECE_BYTES).await;
            let piece = piece.map_err(|error| refuse(path, &format!("cannot be read: {error}")))?;
            let input = StoreFile {
                attempt: self.attempt,
                path: path.clone(),
                size: *size,
                sha256: sha256.clone(),
                offset,
                content: BASE64.encode(&piece),
            };
            let name = HEXLOWER.encode(&Sha256::digest(path));
            let key = format!("job/{}/{}/store/{}/{offset}", self.job.job_id, self.attempt, &name[..16]);
            self.call(&input, &key).await.map_err(|error| error.about(path))?;
            offset += piece.len() as u64;
            if offset >= *size {
                return Ok(StoredFile { path: path.clone(), size: *size, sha256: sha256.clone() });
            }
        }
    }

    async fn call<T>(&self, input: &T, key: &str) -> Result<T::Output, FileError>
    where
        T: contract::ToolContract<Output: serde::de::DeserializeOwned> + serde::Serialize,
    {
        let called = leased::call(self.gateway, input, key, self.lease, self.patience).await;
        called.map_err(|failure| match failure {
            CallFailure::Gateway(error) if error.is_transient() => {
                FileError::Away(broker::Chain(&error).to_string())
            }
            CallFailure::Gateway(error @ mcp::Error::Unauthorized(_)) => FileError::Token(error.to_string()),
            other => FileError::Refused(other.to_string()),
        })
    }
}

impl FileError {
    pub(super) fn about(self, path: &str) -> Self {
        match self {
            Self::Away(_) | Self::Token(_) => self,
            Self::Refused(why) => Self::Refused(format!("{path}: {why}")),
        }
    }
}

fn size_of(content: &FileContent) -> u64 {
    match content {
        FileContent::Text { text } => text.len() as u64,
        // Three bytes in four characters; what is missing of the last three is padded.
        FileContent::Base64 { base64 } => (base64.trim_end_matches('=').len() as u64) * 3 / 4,
        FileContent::Artifact { size, .. } => *size,
    }
}

fn refuse(path: &str, why: &str) -> FileError {
    FileError::Refused(format!("{path}: {why}"))
}
