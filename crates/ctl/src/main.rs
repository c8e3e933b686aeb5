//! `cynodectl`, the operator's command line: publishes, watches and cancels handoffs, manages dead letters
//! and administers the gateway. Nothing in production depends on it.

mod answer;
mod cancel;
mod chat;
mod cli;
mod dead;
mod error;
mod gateway;
mod handoff;
mod journal;
mod link;
mod listener;
mod nkeys;
mod print;
mod provision;
mod status;
mod up;
mod watch;

use std::process::ExitCode;

use broker::Chain;
use clap::Parser;

use crate::{
    cli::{Cli, Command, Memory},
    error::{Error, Exit},
    gateway::Gateway,
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_error = error.use_stderr();
            // A closed stream cannot be reported anywhere.
            drop(error.print());
            return if is_error { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::note(&format!("cynodectl: {error}"));
            return Exit::Unavailable.into();
        }
    };
    let outcome = runtime.block_on(run(cli));
    // The thread that reads standard input cannot be stopped; it ends with the process.
    runtime.shutdown_background();
    match outcome {
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
    let open = || Gateway::open(&gateway);
    match command {
        Command::Handoff(command) => handoff::run(&link, &gateway, command, json).await,
        Command::Watch(command) => watch::run(&broker().await?, &command, json).await,
        Command::Cancel(command) => cancel::run(&broker().await?, &command, json).await,
        Command::Up(command) => up::run(command, link.layout).await,
        Command::Down(command) => up::down(&command).await,
        Command::Chat(command) => chat::run(&broker().await?, &gateway, &command).await,
        Command::Status => status::run(&broker().await?, &gateway, json).await,
        Command::Journal(command) => journal::run(&broker().await?, command, json).await,
        Command::Dead(command) => dead::run(&broker().await?, command, json).await,
        Command::Provision(command) => provision::run(&broker().await?, &command, json).await,
        Command::Nkeys(command) => nkeys::run(&command, json),
        Command::Tools(command) => gateway::tools::run(&open()?, command, json).await,
        Command::Keys(command) => gateway::keys::run(&open()?, command, json).await,
        Command::Tokens(command) => gateway::tokens::run(&open()?, command, json).await,
        Command::Leases(command) => gateway::leases::run(&open()?, command, json).await,
        Command::Tasks(command) => gateway::tasks::run(&open()?, command, json).await,
        Command::Workflows(command) => gateway::workflows::run(&open()?, command, json).await,
        Command::Jobs(command) => gateway::jobs::run(&open()?, command, json).await,
        Command::Nodes(command) => gateway::nodes::run(&open()?, command, json).await,
        Command::Outbox => gateway::outbox::run(&open()?, json).await,
        Command::Egress(command) => gateway::egress::run(&open()?, command, json).await,
        Command::Upstreams(command) => gateway::upstreams::run(&open()?, command, json).await,
        Command::Rules(command) => gateway::rules::run(&open()?, command, json).await,
        Command::Settings(command) => gateway::settings::run(&open()?, command, json).await,
        Command::Preferences(command) => gateway::preferences::run(&open()?, command, json).await,
        Command::Schedules(command) => gateway::schedules::run(&open()?, command, json).await,
        Command::Skills(command) => gateway::skills::run(&open()?, command, json).await,
        Command::Memory(Memory::PdfText) => gateway::memory::print_pdf(),
        Command::Memory(command) => gateway::memory::run(&open()?, command, json).await,
        Command::Audit(command) => gateway::audit::run(&gateway, &link, command, json).await,
    }
}
