//! `cynode-pma`: parse, load, run until told to stop, say how it went with the exit code.

use std::{io, num::NonZeroUsize, process::ExitCode};

use broker::Chain;
use clap::Parser;
use cynode_pma::{
    VERSION,
    config::{Cli, Command, Config},
};
use tokio::runtime::{self, Runtime};
use tracing::warn;

/// A handoff allocates some hundred and fifty times. With the system's allocator the worker takes a sixth more CPU; this one
/// costs 9 MiB when idle.
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
    let loaded = match Config::load(&cli, std::env::vars()) {
        Ok(loaded) => loaded,
        Err(error) => return fail(EX_USAGE, &error),
    };
    if cli.command() == Command::Config {
        return say(&loaded.describe());
    }
    match runtime(loaded.config.worker.threads) {
        Ok(runtime) if cli.command() == Command::Check => {
            ended(runtime.block_on(cynode_pma::check(loaded.config)))
        }
        Ok(runtime) => run(&runtime, loaded.config),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
}

/// Handoffs wait for others far more than they compute. On one thread what is ready is done in one go, and what it sends
/// goes out together; threads that wake each other for every message cost half as much again.
fn runtime(threads: NonZeroUsize) -> io::Result<Runtime> {
    let mut builder = match threads.get() {
        1 => runtime::Builder::new_current_thread(),
        several => {
            let mut builder = runtime::Builder::new_multi_thread();
            builder.worker_threads(several);
            builder
        }
    };
    builder.enable_all().build()
}

fn run(runtime: &Runtime, config: Config) -> ExitCode {
    let options = telemetry::Options {
        service: "cynode-pma",
        version: VERSION,
        instance: Some(config.instance.as_str()),
        level: &config.telemetry.log_level,
        format: config.telemetry.log_format,
        collector: config.telemetry.otlp_endpoint.as_ref(),
    };
    let telemetry = match telemetry::start(&options, runtime.handle()) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(EX_USAGE, &error),
    };
    let ran = runtime.block_on(cynode_pma::run(config));
    // Last, so that all that was done is seen. It waits, so it does that elsewhere: here is where it is sent from.
    let stopped = runtime.block_on(runtime.spawn_blocking(|| telemetry.stop()));
    if let Err(error) = stopped {
        warn!(%error, "Last traces may not have been exported.");
    }
    ended(ran)
}

fn ended(worked: Result<String, cynode_pma::Error>) -> ExitCode {
    match worked {
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
    eprintln!("cynode-pma: {}", telemetry::redact(&Chain(error).to_string()));
    ExitCode::from(code)
}
