//! Idempotency keys of calls to tools of this node: under one lease, a key identifies one effect.
//!
//! A key is claimed before its call is made and is never forgotten while the lease is in use. If the answers
//! take too much room, the oldest are dropped: a repeated call is then refused. If there are too many keys, a
//! call with a new one is refused.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use subjects::edge::EdgeCall;
use tokio_util::sync::CancellationToken;

pub(crate) const MAX_KEY_BYTES: usize = 256;

/// A SHA-256.
type Digest = [u8; 32];

/// Returns whether the gateway would accept the key, too.
pub(crate) fn is_valid(key: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len()) && !key.contains(char::is_control)
}

/// Returns a key as the audit names it.
pub(crate) fn named(key: &str) -> String {
    HEXLOWER.encode(&digest_of_key(key))
}

fn digest_of_key(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns a digest that distinguishes calls with the same key.
fn digest_of_call(tool: &str, arguments_digest: &str) -> Digest {
    Sha256::new().chain_update(tool).chain_update([0]).chain_update(arguments_digest).finalize().into()
}

/// The record of a completed call with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The result as JSON, which takes less room than the value and can be counted.
    Answered(Arc<str>),
    /// The call was made, and its answer is not kept any more.
    Forgotten,
    /// It is unknown whether the call had its effect.
    InDoubt,
}

/// A key that an earlier process used.
#[derive(Clone, Debug)]
pub(crate) struct UsedKey {
    key: Digest,
    call: Digest,
    kept: Kept,
}

impl UsedKey {
    /// Reads the key of a call that began. `None` if it has none.
    pub(crate) fn of(call: &EdgeCall) -> Option<Self> {
        let key = HEXLOWER.decode(call.key_digest.as_ref()?.as_bytes()).ok()?.try_into().ok()?;
        let arguments = call.arguments_digest.as_deref().unwrap_or_default();
        Some(Self { key, call: digest_of_call(&call.tool, arguments), kept: Kept::InDoubt })
    }

    /// Records that the call succeeded. Of any other, the audit does not say whether it had its effect.
    pub(crate) fn succeeded(&mut self) {
        self.kept = Kept::Forgotten;
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// No earlier call has the key: this one may be made.
    Fresh(Claim),
    /// An earlier call with the key is running. Ask again when it has ended.
    Running(CancellationToken),
    /// The call is not made.
    Refused(Refusal),
}

/// Why a call with a key is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It was made before.
    Made(Kept),
    /// The key was used for another call.
    Reused,
    /// There is no room for another key.
    Full,
}

/// The keys that were used under one lease.
#[derive(Debug)]
pub(crate) struct Keys {
    max_keys: usize,
    max_answer_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: HashMap<Digest, Used>,
    /// Keys whose answers are kept, oldest first.
    answered: VecDeque<Digest>,
    answer_bytes: usize,
}

#[derive(Debug)]
struct Used {
    call: Digest,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// The token is cancelled when the call ends.
    Running(CancellationToken),
    Ended(Kept),
}

impl Keys {
    pub(crate) fn new(max_keys: usize, max_answer_bytes: usize) -> Self {
        Self { max_keys, max_answer_bytes, state: Mutex::default() }
    }

    /// Adds the keys that an earlier process used under the lease. Their answers were lost with it.
    pub(crate) fn restore(&self, used: Vec<UsedKey>) {
        let mut state = self.lock();
        used.into_iter().for_each(|UsedKey { key, call, kept }| state.put(key, call, kept));
    }

    /// Claims a key for a call. Never waits.
    pub(crate) fn claim(self: &Arc<Self>, key: &str, tool: &str, arguments_digest: &str) -> Claimed {
        let (key, call) = (digest_of_key(key), digest_of_call(tool, arguments_digest));
        let mut state = self.lock();
        if let Some(found) = state.find(&key, &call) {
            return found;
        }
        if state.used.len() >= self.max_keys {
            return Claimed::Refused(Refusal::Full);
        }
        let ended = CancellationToken::new();
        state.used.insert(key, Used { call, progress: Progress::Running(ended.clone()) });
        drop(state);
        Claimed::Fresh(Claim { keys: self.clone(), key, call, ended })
    }

    /// Returns what became of this call under this key; `None` if it was not made here. Another call may have
    /// used the key.
    pub(crate) fn find(&self, key: &str, tool: &str, arguments_digest: &str) -> Option<Claimed> {
        let found = self.lock().find(&digest_of_key(key), &digest_of_call(tool, arguments_digest))?;
        (!matches!(found, Claimed::Refused(Refusal::Reused))).then_some(found)
    }

    /// The state is never left half changed, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is claimed for a running call. If it is dropped, the outcome of the call is unknown.
#[derive(Debug)]
pub(crate) struct Claim {
    keys: Arc<Keys>,
    key: Digest,
    call: Digest,
    ended: CancellationToken,
}

impl Claim {
    /// Stores what is kept of the call, and wakes the calls that wait for it.
    pub(crate) fn settle(self, kept: Kept) {
        self.store(kept);
    }

    /// Frees the key, because the call had no effect.
    pub(crate) fn release(self) {
        self.keys.lock().used.remove(&self.key);
        self.ended.cancel();
    }

    fn store(&self, kept: Kept) {
        let mut state = self.keys.lock();
        if let Kept::Answered(text) = &kept {
            state.answer_bytes += text.len();
            state.answered.push_back(self.key);
        }
        state.put(self.key, self.call, kept);
        // The newest is kept whatever its size: calls may be waiting for it.
        while state.answer_bytes > self.keys.max_answer_bytes && state.answered.len() > 1 {
            state.forget_oldest();
        }
        drop(state);
        self.ended.cancel();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.ended.is_cancelled() {
            self.store(Kept::InDoubt);
        }
    }
}

impl State {
    fn find(&self, key: &Digest, call: &Digest) -> Option<Claimed> {
        self.used.get(key).map(|used| match &used.progress {
            _ if used.call != *call => Claimed::Refused(Refusal::Reused),
            Progress::Running(ended) => Claimed::Running(ended.clone()),
            Progress::Ended(kept) => Claimed::Refused(Refusal::Made(kept.clone())),
        })
    }

    fn put(&mut self, key: Digest, call: Digest, kept: Kept) {
        self.used.insert(key, Used { call, progress: Progress::Ended(kept) });
    }

    fn forget_oldest(&mut self) {
        let oldest = self.answered.pop_front().and_then(|key| self.used.get_mut(&key));
        if let Some(Used { progress: Progress::Ended(kept), .. }) = oldest
            && let Kept::Answered(text) = std::mem::replace(kept, Kept::Forgotten)
        {
            self.answer_bytes = self.answer_bytes.saturating_sub(text.len());
        }
    }
}

#[cfg(test)]
mod tests;
