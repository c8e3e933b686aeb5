//! `cynode-pma`: parse, load, run until told to stop, say how it went with the exit code.

use std::process::ExitCode;

use broker::Chain;
use clap::Parser;
use cynode_pma::{
    config::{Cli, Command, Config},
    logs,
};

/// Messages are allocated on one thread and freed on another all the time. In the profile that led here a fifth of the
/// worker's time went to the system's allocator; this one gains up to a tenth in throughput and costs 15 MiB when idle.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As `sysexits.h` has them, so that a supervisor can tell a bad configuration from a bad day.
const EX_USAGE: u8 = 64;
const EX_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let wrong = error.use_stderr();
            // Nothing can be said if even that stream is closed.
            drop(error.print());
            return if wrong { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match Config::load(&cli, std::env::vars()) {
        Err(error) => fail(EX_USAGE, &error),
        Ok(loaded) => match cli.command() {
            Command::Config => say(&loaded.describe()),
            Command::Check => start(cynode_pma::check(loaded.config)),
            Command::Run => {
                logs::start(&loaded.config.telemetry);
                start(cynode_pma::run(loaded.config))
            }
        },
    }
}

fn start<F>(work: F) -> ExitCode
where
    F: Future<Output = Result<String, cynode_pma::Error>>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(EX_UNAVAILABLE, &error),
    };
    match runtime.block_on(work) {
        Ok(text) => say(&text),
        Err(error) => fail(if error.is_configuration() { EX_USAGE } else { EX_UNAVAILABLE }, &error),
    }
}

#[expect(clippy::print_stdout, reason = "what the command was asked to print")]
fn say(text: &str) -> ExitCode {
    if !text.is_empty() {
        println!("{text}");
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the last word of a process that cannot go on")]
fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("cynode-pma: {}", Chain(error));
    ExitCode::from(code)
}
