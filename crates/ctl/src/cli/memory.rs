//! Commands for memories.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// Ingest the texts, source code and PDFs of a folder as memories. Run it again to update them.
    Ingest(Ingest),
    /// Search memories.
    Search {
        /// Words to search for, in any order.
        query: String,
        #[command(flatten)]
        at: ProfileAt,
        /// Only memories whose path begins with this.
        #[arg(long)]
        prefix: Option<String>,
        /// Maximum number of chunks.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=50))]
        limit: u64,
    },
    /// List memories by path.
    #[command(visible_alias = "ls")]
    List {
        /// Only paths that begin with this.
        prefix: Option<String>,
        #[command(flatten)]
        at: ProfileAt,
    },
    /// Print the text of a memory.
    Show {
        /// Path of the memory.
        path: String,
        #[command(flatten)]
        at: ProfileAt,
    },
    /// Delete a memory. Its text is lost.
    #[command(visible_alias = "rm")]
    Delete {
        /// Path of the memory, or with --all-below of a folder.
        path: String,
        #[command(flatten)]
        at: ProfileAt,
        /// Delete all memories in the folder.
        #[arg(long)]
        all_below: bool,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Print the text of the PDF on standard input: an ingest reads each PDF in a process of its own.
    #[command(hide = true)]
    PdfText,
}

/// The memory profile of a command.
#[derive(Args, Debug)]
pub(crate) struct ProfileAt {
    /// Memory profile, as in the setting `memory.profile` of workers.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = parse_profile)]
    pub(crate) profile: String,
}

#[derive(Args, Debug)]
pub(crate) struct Ingest {
    /// Folder. Skips hidden files, and those that a .gitignore or .ignore names.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) at: ProfileAt,
    /// First part of the paths, one for each folder that you ingest; the name of the folder by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Tag of each memory. Repeatable.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Let this folder replace another one that was ingested under the same name.
    #[arg(long)]
    pub(crate) moved: bool,
    /// If the folder no longer has any files, delete all of its memories.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Keep running, and ingest changes of the folder until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
}

fn parse_profile(name: &str) -> Result<String, policy::InvalidProfile> {
    name.parse().map(|profile: policy::MemoryProfile| profile.to_string())
}
