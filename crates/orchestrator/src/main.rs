//! `cynode-orchestrator`: parses the command line, loads the configuration, serves until a signal, and
//! reports the result in the exit code.

use std::process::ExitCode;

use cynode_orchestrator::{
    config::{self, Cli, Command, Config, PROGRAM},
    run,
};
use settings::command::{EX_UNAVAILABLE, EX_USAGE, parse_flags, print};
use telemetry::Service;
use tracing::warn;

/// Messages are often allocated on one thread and freed on another, which is slow with the system's
/// allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli: Cli = match parse_flags() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Command::Config { reference: true } = cli.command() {
        return print(config::reference().trim_end());
    }
    let loaded = match Config::load(&cli) {
        Ok(loaded) => loaded,
        Err(error) => return PROGRAM.fail(EX_USAGE, &error),
    };
    match cli.command() {
        Command::Config { .. } => return print(&loaded.describe()),
        Command::Health { ready } => {
            let path = if ready { "/readyz" } else { "/livez" };
            let answer = telemetry::probe(loaded.config.admin.listen, path);
            return PROGRAM.exit_code(EX_UNAVAILABLE, answer);
        }
        Command::Run | Command::Check => {}
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return PROGRAM.fail(EX_UNAVAILABLE, &error),
    };
    if let Command::Check = cli.command() {
        // Without a log: the report is for people.
        let warnings = loaded.warnings();
        let mut report = runtime.block_on(run::check(&loaded.config));
        warnings.iter().for_each(|warning| report.remark("setting", warning));
        return PROGRAM.exit_report(&report);
    }
    let options = loaded.config.telemetry.clone();
    let service = Service { name: PROGRAM.name, version: env!("CARGO_PKG_VERSION"), instance: None };
    let work = async {
        for warning in loaded.warnings() {
            warn!("{warning}");
        }
        run::run(loaded.config).await.map(|()| String::new())
    };
    match telemetry::run(service, &options, &runtime, work) {
        Ok(result) => PROGRAM.exit_code(EX_UNAVAILABLE, result),
        Err(error) => PROGRAM.fail(EX_USAGE, &error),
    }
}
