//! Limits of jobs, as an operator sets them.

/// The default and the maximum of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRange {
    pub default: u32,
    pub max: u32,
}

impl LimitRange {
    pub const fn new(default: u32, max: u32) -> Self {
        Self { default, max }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Thousandths of a core.
    pub cpu_milli: LimitRange,
    pub memory_mb: LimitRange,
    pub pids: LimitRange,
    pub disk_mb: LimitRange,
    pub seconds: LimitRange,
    pub output_kb: LimitRange,
    /// The largest file that is kept.
    pub max_file_mb: u32,
    /// How many files of one job are kept.
    pub max_files: u32,
    /// How much all kept files of one job may have.
    pub max_total_mb: u32,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            cpu_milli: LimitRange::new(1_000, 4_000),
            memory_mb: LimitRange::new(512, 4_096),
            pids: LimitRange::new(128, 1_024),
            disk_mb: LimitRange::new(512, 8_192),
            seconds: LimitRange::new(600, 21_600),
            output_kb: LimitRange::new(1_024, 65_536),
            max_file_mb: 16,
            max_files: 64,
            max_total_mb: 64,
        }
    }
}
