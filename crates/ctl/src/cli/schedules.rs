//! Commands for schedules.

use std::{path::PathBuf, time::Duration};

use api::{Concurrency, MissedRuns};
use clap::{Args, Subcommand};
use subjects::ScopeId;

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    /// Create a schedule. Shows its next ten firings first and asks for confirmation.
    Create(Box<NewSchedule>),
    /// List schedules by name.
    #[command(visible_alias = "list")]
    Ls {
        /// Filter by user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Maximum number of schedules; at most 200.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=200))]
        limit: u64,
        /// Number of schedules to skip.
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// Show a schedule with its payload and its next ten firings.
    Show(ScheduleAt),
    /// Change a schedule. A new timing begins after now.
    Update(Box<ScheduleUpdate>),
    /// Suspend a schedule: it does not fire until it is resumed.
    Suspend(ScheduleAt),
    /// Resume a schedule. What was due meanwhile counts as missed.
    Resume(ScheduleAt),
    /// Start a run now, also of a suspended schedule.
    Run(ScheduleAt),
    /// Delete a schedule with its runs. Work that it started continues.
    #[command(visible_alias = "delete")]
    Rm {
        #[command(flatten)]
        at: ScheduleAt,
        /// Expected current version.
        #[arg(long)]
        version: Option<i64>,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Show when a timing is due, without storing anything.
    Preview {
        #[command(flatten)]
        timing: TimingArgs,
        /// Number of firings.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
        count: u64,
        /// Those after this time, in RFC 3339; now by default.
        #[arg(long, value_name = "TIME")]
        after: Option<String>,
    },
    /// List the runs of a schedule and the slots that were skipped, newest first.
    History {
        #[command(flatten)]
        at: ScheduleAt,
        /// Maximum number of runs; at most 200.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=200))]
        limit: u64,
        /// Number of runs to skip.
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ScheduleAt {
    /// Id or name of the schedule. An administrator adds --user to a name that several users have.
    pub(crate) schedule: String,
    /// User whose schedule it is.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
}

/// When a schedule is due.
#[derive(Args, Debug, Default)]
pub(crate) struct TimingArgs {
    /// Cron expression of five fields, or of six with seconds first, such as "0 9 * * MON-FRI".
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["every", "once"])]
    pub(crate) cron: Option<String>,
    /// Interval, such as 15min; at least 1s.
    #[arg(long, value_name = "DURATION", conflicts_with = "once", value_parser = humantime::parse_duration)]
    pub(crate) every: Option<Duration>,
    /// First slot of an interval, in RFC 3339; one interval from now by default.
    #[arg(long, value_name = "TIME", requires = "every")]
    pub(crate) starting_at: Option<String>,
    /// One time: in RFC 3339, or by the clock of --time-zone, such as 2026-10-25T02:30.
    #[arg(long, value_name = "TIME")]
    pub(crate) once: Option<String>,
    /// Time zone of --cron or --once, such as Europe/Berlin; UTC by default.
    #[arg(long, value_name = "NAME", conflicts_with = "every")]
    pub(crate) time_zone: Option<String>,
}

/// What a schedule asks for.
#[derive(Args, Debug, Default)]
pub(crate) struct PayloadArgs {
    /// Prompt for the project manager.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "task", "job"])]
    pub(crate) prompt: Option<String>,
    /// File with the prompt; `-` reads it from standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "job"])]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Task that the project manager creates and starts.
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    pub(crate) task: Option<String>,
    /// Description of the task.
    #[arg(long, value_name = "TEXT", requires = "task")]
    pub(crate) description: Option<String>,
    /// Acceptance criterion of the task. Repeatable.
    #[arg(long = "criterion", value_name = "TEXT", requires = "task")]
    pub(crate) criteria: Vec<String>,
    /// Kind of a job that is queued without the project manager, such as build.
    #[arg(long, value_name = "KIND")]
    pub(crate) job: Option<String>,
    /// Payload of the job: a JSON object.
    #[arg(long, value_name = "JSON", requires = "job")]
    pub(crate) job_payload: Option<String>,
    /// Open task that the job is for; by default one task for all jobs of the schedule.
    #[arg(long, value_name = "ID", requires = "job")]
    pub(crate) job_task: Option<ScopeId>,
    /// Node that runs the job.
    #[arg(long, value_name = "ID", requires = "job")]
    pub(crate) job_node: Option<ScopeId>,
}

/// What happens to slots that are late or meet an open run.
#[derive(Args, Debug, Default)]
pub(crate) struct PolicyArgs {
    /// Missed slots: skip, once (the latest fires) or all. Default once.
    #[arg(long, value_parser = named::<MissedRuns>)]
    pub(crate) missed: Option<MissedRuns>,
    /// How many missed slots fire with `all`: 1 to 100. Default 10.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) missed_limit: Option<u32>,
    /// If the last run is open: allow (both run), forbid (the new one is skipped) or replace (the old one is
    /// cancelled). Default allow.
    #[arg(long, value_parser = named::<Concurrency>)]
    pub(crate) concurrency: Option<Concurrency>,
    /// How long a run may take; 1day by default, 7days at most.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct NewSchedule {
    /// Name, unique among the schedules of the user.
    pub(crate) name: String,
    /// User on whose behalf it runs; of a user token, its own.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    /// Project that runs are for.
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<ScopeId>,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// Create it suspended.
    #[arg(long)]
    pub(crate) suspended: bool,
    /// Do not prompt for confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ScheduleUpdate {
    #[command(flatten)]
    pub(crate) at: ScheduleAt,
    /// New name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// Expected current version.
    #[arg(long)]
    pub(crate) version: Option<i64>,
    /// Do not prompt for confirmation of a new timing.
    #[arg(long, short)]
    pub(crate) yes: bool,
}
