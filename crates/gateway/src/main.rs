//! `cynode-gateway`: parse, load, serve until told to stop, say how it went with the exit code.

use std::process::ExitCode;

use broker::Chain;
use clap::Parser;
use cynode_gateway::{
    config::{Cli, Command, Config},
    run,
};

/// Messages are allocated on one thread and freed on another all the time; the system's allocator is slow at that.
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
    let loaded = match Config::load(&cli) {
        Ok(loaded) => loaded,
        Err(error) => return fail(EX_USAGE, &error),
    };
    if cli.command() == Command::Config {
        return say(&loaded.describe());
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(EX_UNAVAILABLE, &error),
        };
    let Config { log, collector, .. } = &loaded.config;
    let options = telemetry::Options {
        service: "cynode-gateway",
        version: env!("CARGO_PKG_VERSION"),
        instance: None,
        level: &log.level,
        format: log.format,
        collector: collector.as_ref(),
    };
    let telemetry = match telemetry::start(&options, runtime.handle()) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(EX_USAGE, &error),
    };
    let work = async {
        match cli.command() {
            Command::Check => run::check(&loaded.config).await,
            Command::Run | Command::Config => run::run(cli, loaded.config).await.map(|()| String::new()),
        }
    };
    let worked = runtime.block_on(work);
    // Last, so that all that was done is seen.
    telemetry.stop();
    match worked {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => say(&text),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
}

/// One core is left to SQLite, whose thread calls with a key wait for: with a thread for each core, a call that comes alone
/// is a tenth of a millisecond slower on a machine with two.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

#[expect(clippy::print_stdout, reason = "what the command was asked to print")]
fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the last word of a process that cannot go on")]
fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("cynode-gateway: {}", telemetry::redact(&Chain(error).to_string()));
    ExitCode::from(code)
}
