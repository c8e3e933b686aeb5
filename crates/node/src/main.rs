//! `cynode-node`: parses the command line, loads the configuration, runs jobs until a signal, and reports the
//! result in the exit code.

use std::process::ExitCode;

use cynode_node::{
    config::{self, Cli, Command, Config, PROGRAM},
    run,
};
use settings::command::{EX_UNAVAILABLE, EX_USAGE, parse_flags, print};
use telemetry::Service;
use tracing::warn;

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
            return PROGRAM.exit_code(EX_UNAVAILABLE, telemetry::probe(loaded.config.admin, path));
        }
        Command::Run | Command::Check { .. } => {}
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return PROGRAM.fail(EX_UNAVAILABLE, &error),
    };
    if let Command::Check { engines } = cli.command() {
        // Without a log: the report is for people.
        let warnings = loaded.warnings().to_vec();
        let mut report = runtime.block_on(run::check(loaded.config, engines));
        warnings.iter().for_each(|warning| report.remark("setting", warning));
        return PROGRAM.exit_report(&report);
    }
    let options = loaded.config.telemetry.clone();
    let instance = loaded.config.node.id.to_string();
    let service =
        Service { name: PROGRAM.name, version: env!("CARGO_PKG_VERSION"), instance: Some(&instance) };
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
