//! Removes what a node that died left on this machine.

use std::{io, sync::Arc};

use crate::{
    cgroup::Group,
    engine,
    host::{Host, JobFolder},
};

/// Counts of what was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Jobs of which something was left.
    pub jobs: usize,
    pub processes: usize,
    pub cgroups: usize,
    pub mounts: usize,
    /// Jobs of which something could not be removed; the next start tries again.
    pub failed: usize,
}

/// Removes what earlier processes of this node left. To be called before the first job is started.
///
/// Users for jobs need no care: a job has its own as long as one of its processes lives.
pub async fn reconcile(host: &Arc<Host>) -> io::Result<Reconciled> {
    let mut done = Reconciled::default();
    for (folder, record) in JobFolder::left(&host.jobs())? {
        done.jobs += 1;
        let Some(record) = record else {
            // The record is written before anything is made.
            folder.remove();
            continue;
        };
        let removed = async {
            let teardown = engine::teardown_of(host, &record);
            for group in record.engine_group.iter().chain(&record.group) {
                done.processes += group.processes().len();
                done.cgroups += usize::from(group.exists());
                group.empty().await?;
            }
            done.mounts += usize::from(teardown.mount.is_some());
            teardown.run(&host.spawner).await?;
            record.engine_group.iter().chain(&record.group).try_for_each(Group::remove)
        };
        match removed.await {
            Ok(()) => folder.remove(),
            Err(error) => {
                tracing::error!(%error, name = record.name, "Job of an earlier process not removed.");
                done.failed += 1;
            }
        }
    }
    if done.jobs > 0 {
        tracing::info!(?done, "Jobs of an earlier process removed.");
    }
    Ok(done)
}
