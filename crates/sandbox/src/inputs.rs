//! Accounts for the memory that the inputs of a job use.
//!
//! The node writes them, so the kernel counts their pages as the node's. The job's control group gets so much
//! less instead: inputs and all that the job uses together stay within its limit, with every engine.

use rustix::fs::statfs;

use crate::spec::{Limits, MIN_MEMORY, SpecError};

/// Kernel memory for a file or a folder in memory, without its content, in bytes.
const INODE_BYTES: u64 = 1024;
/// The size of a page where the kernel does not tell.
const USUAL_PAGE_BYTES: u64 = 4096;

impl Limits {
    /// Returns how much memory inputs take, each given by its path and size. Fails if they leave too little
    /// for the processes of the job.
    pub fn memory_of_inputs<'a>(
        &self,
        inputs: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<u64, SpecError> {
        let page = page_bytes();
        let (mut files, mut taken) = (0_u64, 0_u64);
        for (path, size) in inputs {
            let folders = path.bytes().filter(|byte| *byte == b'/').count() as u64;
            let pages = size.div_ceil(page).saturating_mul(page);
            taken = taken.saturating_add(pages).saturating_add((1 + folders) * INODE_BYTES);
            files += 1;
        }
        // A job without inputs has its whole memory, however little that is.
        if files == 0 || taken.saturating_add(MIN_MEMORY) <= self.memory {
            return Ok(taken);
        }
        let problem = format!(
            "take {taken} bytes of memory in {files} files, and the job may use {} bytes, of which \
             {MIN_MEMORY} are for its processes; give the job more memory (`memory_mb`) or fewer files",
            self.memory
        );
        Err(SpecError { field: "inputs", problem })
    }
}

/// Returns the size of a page: the unit in which a file in memory grows.
fn page_bytes() -> u64 {
    // File systems that have no device report it as the size of their blocks.
    let told = statfs("/proc").ok().and_then(|it| u64::try_from(it.f_bsize).ok());
    told.filter(|bytes| bytes.is_power_of_two()).unwrap_or(USUAL_PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_take_whole_pages_and_what_their_names_need() {
        let limits = Limits { memory: 64 << 20, ..Limits::default() };
        let page = page_bytes();
        assert_eq!(limits.memory_of_inputs([]), Ok(0));
        assert_eq!(limits.memory_of_inputs([("a", 0)]), Ok(INODE_BYTES));
        let taken = limits.memory_of_inputs([("a", 1), ("b/c/d", page + 1)]);
        assert_eq!(taken, Ok(3 * page + 4 * INODE_BYTES));
    }

    #[test]
    fn inputs_that_leave_nothing_for_processes_are_refused_with_both_sizes() {
        let limits = Limits { memory: 64 << 20, ..Limits::default() };
        let refused = limits.memory_of_inputs([("a", 500 << 20)]).unwrap_err().to_string();
        for part in ["524289024 bytes of memory in 1 files", "67108864 bytes", "`memory_mb`"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(limits.memory_of_inputs([("a", u64::MAX), ("b", u64::MAX)]).is_err());
        assert!(limits.memory_of_inputs([("a", 59 << 20)]).is_ok());
    }
}
