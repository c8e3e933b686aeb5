//! `cynode-gateway`: parses the command line, loads the configuration, serves until a signal, and reports the
//! result in the exit code.

use std::process::ExitCode;

use broker::Chain;
use clap::Parser;
use cynode_gateway::{
    config::{self, Cli, Command, Config},
    run,
};
use tracing::warn;

/// Messages are often allocated on one thread and freed on another, which is slow with the system's
/// allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Codes of `sysexits.h`, so that a supervisor can tell an invalid configuration from a temporary failure.
const EX_USAGE: u8 = 64;
const EX_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_failure = error.use_stderr();
            // If the stream is closed, there is no way to report that.
            drop(error.print());
            return if is_failure { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::Config { reference: true } = cli.command() {
        return say(config::reference().trim_end());
    }
    let loaded = match Config::load(&cli) {
        Ok(loaded) => loaded,
        Err(error) => return fail(EX_USAGE, &error),
    };
    if let Command::Config { .. } = cli.command() {
        return say(&loaded.describe());
    }
    if let Command::Health { ready } = cli.command() {
        return health(&loaded.config, if ready { "/readyz" } else { "/livez" });
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(EX_UNAVAILABLE, &error),
        };
    let config = &loaded.config.telemetry;
    let options = telemetry::Options {
        service: "cynode-gateway",
        version: env!("CARGO_PKG_VERSION"),
        instance: None,
        level: &config.log_level,
        format: config.log_format,
        collector: config.otlp_endpoint.as_ref(),
    };
    let telemetry = match telemetry::start(&options, runtime.handle()) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(EX_USAGE, &error),
    };
    for warning in loaded.warnings() {
        warn!("{warning}");
    }
    let work = async {
        match cli.command() {
            Command::Check => run::check(&loaded.config).await,
            Command::Run | Command::Config { .. } | Command::Health { .. } => {
                run::run(cli, loaded.config).await.map(|()| String::new())
            }
        }
    };
    let result = runtime.block_on(work);
    // Last, so that all spans and logs are exported.
    telemetry.stop();
    match result {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => say(&text),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
}

fn health(config: &Config, path: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(telemetry::probe(config.admin.listen, path))) {
        Ok(Ok(answer)) => say(&answer),
        Ok(Err(error)) => fail(EX_UNAVAILABLE, &error),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
}

/// Returns the number of worker threads. One core is left to SQLite's thread, which calls with a key wait
/// for: with a worker on every core, a single call takes 0.1 ms longer on a machine with two cores.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

#[expect(clippy::print_stdout, reason = "what the command was asked to print")]
fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the error that ends the process")]
fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("cynode-gateway: {}", secrets::redact(&Chain(error).to_string()));
    ExitCode::from(code)
}
