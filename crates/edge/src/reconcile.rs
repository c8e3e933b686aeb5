//! Continues or closes what an earlier process left.

use std::{collections::BTreeSet, fs};

use subjects::edge::{CloseReason, Outcome, Record};
use tracing::{info, warn};

use crate::{
    AppendError, AuditFile, Edge, Error, Session,
    audit_file::Recovered,
    sidecar::{AUDIT, Sidecar, leases, path},
    validity::Validity,
};

/// Ending what an earlier process left needs no more room than was reserved for it.
const UNLIMITED: (u64, u64) = (u64::MAX, u64::MAX);

impl Edge {
    /// Closes the audit of every lease that an earlier process left, except those of jobs that are continued,
    /// by the ids of the jobs' leases. Call it once after [`Edge::open`], before jobs are served. Returns how
    /// many were closed.
    pub fn reconcile(&self, continued: &BTreeSet<String>) -> Result<usize, Error> {
        let file_error = |error| Error::File(self.folder.clone(), error);
        let in_use: BTreeSet<String> = self.active().iter().map(|session| session.lease_id.clone()).collect();
        let mut closed = 0;
        for id in leases(&self.folder).map_err(file_error)? {
            let sidecar = Sidecar::read(&self.folder, &id);
            let is_kept = sidecar.is_some_and(|sidecar| continued.contains(&sidecar.parent_id));
            if is_kept || in_use.contains(&id) {
                continue;
            }
            let file = path(&self.folder, &id, AUDIT);
            if fs::metadata(&file).map_err(file_error)?.len() == 0 {
                // The process ended between the creation of the file and its first line.
                crate::sidecar::remove(&self.folder, &id).map_err(file_error)?;
                continue;
            }
            let key = self.shared.key.clone();
            let Some(left) = AuditFile::recover(&file, &id, key, UNLIMITED).map_err(file_error)? else {
                continue;
            };
            if left.file.closed().is_none() {
                self.end_interrupted(&left)?;
                left.file.close(self.shared.clock.latest(), CloseReason::Restarted)?;
                info!(lease.id = id, "Audit of a lease of an earlier process closed.");
                closed += 1;
            }
        }
        self.shared.appended.notify_one();
        Ok(closed)
    }

    /// Continues the lease that an earlier process bound for a job. `None` if there is none that is still
    /// good; its audit is closed then.
    pub(crate) fn resume(&self, parent_id: &str) -> Result<Option<Session>, Error> {
        let file_error = |error| Error::File(self.folder.clone(), error);
        for id in leases(&self.folder).map_err(file_error)? {
            let Some(sidecar) = Sidecar::read(&self.folder, &id) else { continue };
            if sidecar.parent_id != parent_id || self.active().iter().any(|active| active.lease_id == id) {
                continue;
            }
            let file = path(&self.folder, &id, AUDIT);
            let key = self.shared.key.clone();
            let Some(left) = AuditFile::recover(&file, &id, key, UNLIMITED).map_err(file_error)? else {
                warn!(lease.id = id, "Audit of a lease is damaged; the lease is not continued.");
                continue;
            };
            if left.file.closed().is_some() {
                continue;
            }
            if let Some(session) = self.continue_session(&id, &sidecar, left)? {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    fn continue_session(
        &self,
        id: &str,
        sidecar: &Sidecar,
        left: Recovered,
    ) -> Result<Option<Session>, Error> {
        // A clock that is behind what was recorded cannot tell whether the lease has expired.
        self.shared.clock.note(left.last_at);
        let now = self.shared.clock.now().ok();
        let is_new = left.file.is_new();
        let lease = left.lease.as_ref().and_then(|(text, at)| {
            let lease = self.check(text, Some(sidecar), &sidecar.rules);
            Some((lease.ok()?, text.clone(), *at))
        });
        self.end_interrupted(&left)?;
        let validity = match (lease, now) {
            // Without a second line, no call was made under it, and the gateway may not have its opening.
            (Some((lease, text, at)), Some(now)) if !is_new => {
                Validity::received(lease, text.into(), at, now)
            }
            _ => {
                left.file.close(self.shared.clock.latest(), CloseReason::Restarted)?;
                return Ok(None);
            }
        };
        if !validity.is_valid(&self.shared.clock) {
            left.file.close(self.shared.clock.latest(), CloseReason::Expired)?;
            return Ok(None);
        }
        let keys = left.keys;
        let file = left.file.with_limits(self.file_limits(&validity.lease));
        match file.append(self.shared.clock.latest(), Record::Resumed) {
            Ok(_) => {}
            Err(AppendError::Full) => {
                file.close(self.shared.clock.latest(), CloseReason::Full)?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        info!(lease.id = id, "Lease of an earlier process continued.");
        let (parent, rules) = (sidecar.parent_id.clone(), sidecar.rules.clone());
        let session = Session::new(self.shared.clone(), parent, file, validity, rules);
        session.keys.restore(keys);
        session.note_earlier_calls();
        Ok(Some(session))
    }

    /// Records what was repaired, and that calls were interrupted.
    fn end_interrupted(&self, left: &Recovered) -> Result<(), Error> {
        let at = self.shared.clock.latest();
        if left.torn_bytes > 0 {
            warn!(bytes = left.torn_bytes, "Incomplete line removed from an audit file.");
            left.file.append(at, Record::Repaired { bytes: left.torn_bytes })?;
        }
        for (of, began_at, _) in &left.pending {
            let duration_us = at.saturating_sub(*began_at).max(0);
            let error_type = Some("node_ended".to_owned());
            left.file
                .append(at, Record::Ended { of: *of, outcome: Outcome::Unknown, error_type, duration_us })?;
        }
        Ok(())
    }
}
