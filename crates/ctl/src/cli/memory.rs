//! Commands for memories.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// Keep the texts, source code and PDFs of a folder as memories. Run it again to bring them up to date.
    Ingest(Ingest),
    /// Search memories.
    Search {
        /// Words of what is searched.
        query: String,
        #[command(flatten)]
        at: ProfileAt,
        /// Maximum number of pieces.
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
        /// Path of the memory, or with --all-below the beginning of several paths.
        path: String,
        #[command(flatten)]
        at: ProfileAt,
        /// Delete all memories whose path begins so.
        #[arg(long)]
        all_below: bool,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

/// The memory profile of a command.
#[derive(Args, Debug)]
pub(crate) struct ProfileAt {
    /// Memory profile, as in the setting `memory.profile` of workers.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) profile: String,
}

#[derive(Args, Debug)]
pub(crate) struct Ingest {
    /// Folder. Hidden files, and those that its .gitignore files name, are left out.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) at: ProfileAt,
    /// First part of the paths, one for each folder that you ingest; the name of the folder by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Tag of each memory; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Go on, and follow changes of the folder until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
}
