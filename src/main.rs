//! Entry point of `cynode-pma`: parses flags, loads the configuration, runs until a signal, returns an exit
//! code.

use std::{io, num::NonZeroUsize, process::ExitCode};

use broker::Chain;
use clap::Parser;
use cynode_pma::{
    VERSION,
    config::{self, Cli, Command, Config},
};
use tokio::runtime::{self, Runtime};
use tracing::warn;

/// A handoff makes about 150 allocations. The system allocator needs a sixth more CPU; mimalloc costs 9 MiB
/// when idle.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes from `sysexits.h`, so that a supervisor can tell a configuration error from an outage.
const EX_USAGE: u8 = 64;
const EX_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_error = error.use_stderr();
            // Nothing is left to report to if this stream is closed as well.
            drop(error.print());
            return if is_error { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::Config { reference: true } = cli.command() {
        return print(config::reference().trim_end());
    }
    if let Command::Health { ready } = cli.command() {
        return health(&cli, if ready { "/readyz" } else { "/healthz" });
    }
    let loaded = match Config::load(&cli, std::env::vars()) {
        Ok(loaded) => loaded,
        Err(error) => return fail(EX_USAGE, &error),
    };
    if let Command::Config { .. } = cli.command() {
        return print(&loaded.describe());
    }
    match runtime(loaded.config.worker.threads) {
        Ok(runtime) if cli.command() == Command::Check => {
            exit_code(runtime.block_on(cynode_pma::check(loaded.config)))
        }
        Ok(runtime) => run(&runtime, loaded.config),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
}

/// Builds a runtime. One thread is the default: handoffs mostly wait, so a single thread handles everything
/// that is ready in one pass and sends it in one batch. Waking several threads for each message costs half as
/// much CPU again.
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

fn health(cli: &Cli, path: &str) -> ExitCode {
    let listen = match config::http_address(cli, std::env::vars()) {
        Ok(listen) => listen,
        Err(error) => return fail(EX_USAGE, &error),
    };
    let answer = runtime(NonZeroUsize::MIN).map(|runtime| runtime.block_on(telemetry::probe(listen, path)));
    match answer {
        Ok(Ok(answer)) => print(&answer),
        Ok(Err(error)) => fail(EX_UNAVAILABLE, &error),
        Err(error) => fail(EX_UNAVAILABLE, &error),
    }
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
    // Telemetry stops last so that the shutdown itself is exported. `stop` blocks, and the exporter needs
    // this runtime to make progress, so it runs on a blocking thread.
    let stopped = runtime.block_on(runtime.spawn_blocking(|| telemetry.stop()));
    if let Err(error) = stopped {
        warn!(%error, "Last traces may not have been exported.");
    }
    exit_code(ran)
}

fn exit_code(worked: Result<String, cynode_pma::Error>) -> ExitCode {
    match worked {
        Ok(text) => print(&text),
        Err(error) => fail(if error.is_configuration() { EX_USAGE } else { EX_UNAVAILABLE }, &error),
    }
}

#[expect(clippy::print_stdout, reason = "prints what the command returns")]
fn print(text: &str) -> ExitCode {
    if !text.is_empty() {
        println!("{text}");
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "reports a fatal error")]
fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("cynode-pma: {}", secrets::redact(&Chain(error).to_string()));
    ExitCode::from(code)
}
