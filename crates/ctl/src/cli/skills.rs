//! Commands for skills.

use std::path::PathBuf;

use api::SkillScope;
use clap::{Args, Subcommand};

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Skills {
    /// List skills by name.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by scope: system, user or project.
        #[arg(long, value_parser = named::<SkillScope>)]
        scope: Option<SkillScope>,
        /// Filter by the id of the user or project.
        #[arg(long, value_name = "ID")]
        scope_id: Option<String>,
        /// Maximum number of skills; at most 200.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=200))]
        limit: u64,
        /// Number of skills to skip.
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// Show a skill with its text.
    Show {
        /// Name or id of the skill.
        skill: String,
        #[command(flatten)]
        at: SkillAt,
        /// Print only the text, to edit it and put it again.
        #[arg(long)]
        text: bool,
    },
    /// Create a skill, or replace the text of an existing one. The gateway scans it first.
    Put(NewSkill),
    /// Delete a skill. Its text is lost.
    Delete {
        /// Name or id of the skill.
        skill: String,
        #[command(flatten)]
        at: SkillAt,
        /// Expected current version.
        #[arg(long)]
        version: Option<i64>,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

/// The scope of a skill that is named; for all by default.
#[derive(Args, Debug)]
pub(crate) struct SkillAt {
    /// Skill of this user.
    #[arg(long, value_name = "ID", conflicts_with = "project")]
    pub(crate) user: Option<String>,
    /// Skill of this project; without --user and --project, the skill for all.
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct NewSkill {
    /// Name: lowercase letters, digits and hyphens, such as release-notes.
    pub(crate) name: String,
    /// File with the text, in Markdown; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// When to use it. Required for a new skill; the present one is kept by default.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) at: SkillAt,
    /// Expected current version; 0 if it must not exist.
    #[arg(long)]
    pub(crate) version: Option<i64>,
}
