//! `cynodectl`: the operator's hands. It publishes handoffs, watches, cancels, looks after dead letters and administers
//! the gateway; nothing in production needs it.

mod answer; // an answer in words
mod cancel;
mod chat; // a conversation at the terminal
mod cli; // commands and flags
mod dead;
mod error; // what went wrong, and the exit code for it
mod gateway; // tools, tokens, servers, rules, settings, audit
mod handoff;
mod journal; // a handoff's life
mod keys; // who is who to NATS
mod link; // the connection
mod print; // the only place that writes to the terminal
mod provision; // streams, consumers, buckets
mod status;
mod up; // everything on one machine
mod waiting; // for an answer
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
    let ended = runtime.block_on(run(cli));
    // The thread that reads what is typed ends with the process, not before.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => {
            print::note(&format!("cynodectl: {}", Chain(&error)));
            error.exit().into()
        }
    }
}

async fn run(cli: Cli) -> Result<Exit, Error> {
    let Cli { link, gateway, json, command } = cli;
    let broker = || link::connect(&link);
    match command {
        Command::Handoff(command) => handoff::run(&broker().await?, command, json).await,
        Command::Watch(command) => watch::run(&broker().await?, &command, json).await,
        Command::Cancel(command) => cancel::run(&broker().await?, &command, json).await,
        Command::Up(command) => up::run(command, link.layout).await,
        Command::Down(command) => up::down(&command).await,
        Command::Chat(command) => chat::run(&broker().await?, &command).await,
        Command::Status => status::run(&broker().await?, json).await,
        Command::Journal(command) => journal::run(&broker().await?, command, json).await,
        Command::Dead(command) => dead::run(&broker().await?, command, json).await,
        Command::Provision(command) => provision::run(&broker().await?, &command, json).await,
        Command::Keys(command) => keys::run(&command, json),
        Command::Tools(command) => gateway::tools(&gateway, command, json).await,
        Command::Tokens(command) => gateway::tokens(&gateway, command, json).await,
        Command::Upstreams(command) => gateway::upstreams(&gateway, command, json).await,
        Command::Rules(command) => gateway::rules(&gateway, command, json).await,
        Command::Settings(command) => gateway::settings(&gateway, command, json).await,
        Command::Preferences(command) => gateway::preferences(&gateway, command, json).await,
        Command::Audit(command) => gateway::audit(&gateway, &link, command, json).await,
    }
}
