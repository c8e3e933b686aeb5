//! `cynodectl`: the operator's hands. It publishes handoffs, watches, cancels, and looks after dead letters; nothing
//! in production needs it.

mod answer; // an answer in words
mod cancel;
mod cli; // commands and flags
mod dead;
mod error; // what went wrong, and the exit code for it
mod handoff;
mod link; // the connection
mod print; // the only place that writes to the terminal
mod status;
mod watch;

use std::process::ExitCode;

use broker::Chain;
use clap::Parser;

use crate::{
    cli::{Cli, Command},
    error::{Error, Exit},
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let wrong = error.use_stderr();
            // Nothing can be said if even that stream is closed.
            drop(error.print());
            return if wrong { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::note(&format!("cynodectl: {error}"));
            return Exit::Unavailable.into();
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            print::note(&format!("cynodectl: {}", Chain(&error)));
            error.exit().into()
        }
    }
}

async fn run(cli: Cli) -> Result<Exit, Error> {
    let broker = link::connect(&cli.link).await?;
    match cli.command {
        Command::Handoff(command) => handoff::run(&broker, command, cli.json).await,
        Command::Watch(command) => watch::run(&broker, &command, cli.json).await,
        Command::Cancel(command) => cancel::run(&broker, &command, cli.json).await,
        Command::Status => status::run(&broker, cli.json).await,
        Command::Dead(command) => dead::run(&broker, command, cli.json).await,
    }
}
