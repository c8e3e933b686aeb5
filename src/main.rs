//! Entry point of `cynode-pma`: parses flags, loads the configuration, runs until a signal, returns an exit
//! code.

use std::{io, num::NonZeroUsize, process::ExitCode};

use cynode_pma::{
    VERSION,
    config::{self, Cli, Command, Config, PROGRAM},
};
use settings::command::{EX_UNAVAILABLE, EX_USAGE, parse_flags, print};
use telemetry::Service;
use tokio::runtime::{self, Runtime};

/// A handoff makes about 150 allocations. The system allocator needs a sixth more CPU; mimalloc costs 9 MiB
/// when idle.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli: Cli = match parse_flags() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let loaded = match cli.command() {
        Command::Config { reference: true } => return print(config::reference().trim_end()),
        Command::Health { ready } => {
            let path = if ready { "/readyz" } else { "/healthz" };
            return match config::http_address(&cli, std::env::vars()) {
                Ok(listen) => PROGRAM.exit_code(EX_UNAVAILABLE, telemetry::probe(listen, path)),
                Err(error) => PROGRAM.fail(EX_USAGE, &error),
            };
        }
        _ => Config::load(&cli, std::env::vars()),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return PROGRAM.fail(EX_USAGE, &error),
    };
    if let Command::Config { .. } = cli.command() {
        return print(&loaded.describe());
    }
    match runtime(loaded.config.worker.threads) {
        Ok(runtime) if cli.command() == Command::Check => {
            PROGRAM.exit_report(&runtime.block_on(cynode_pma::check(loaded.config)))
        }
        Ok(runtime) => run(&runtime, loaded.config),
        Err(error) => PROGRAM.fail(EX_UNAVAILABLE, &error),
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

fn run(runtime: &Runtime, config: Config) -> ExitCode {
    let (options, instance) = (config.telemetry.clone(), config.instance.clone());
    let service = Service { name: PROGRAM.name, version: VERSION, instance: Some(instance.as_str()) };
    match telemetry::run(service, &options, runtime, cynode_pma::run(config)) {
        Ok(ran) => exit_code(ran),
        Err(error) => PROGRAM.fail(EX_USAGE, &error),
    }
}

fn exit_code(worked: Result<String, cynode_pma::Error>) -> ExitCode {
    let is_configuration = worked.as_ref().is_err_and(cynode_pma::Error::is_configuration);
    PROGRAM.exit_code(if is_configuration { EX_USAGE } else { EX_UNAVAILABLE }, worked)
}
