//! What the command lines of all programs have in common: flags, output and exit codes.

mod report;

use std::{error::Error, process::ExitCode};

use broker::Chain;
use clap::Parser;

pub use self::report::Report;
use crate::Program;

/// Exit codes from `sysexits.h`, so that a supervisor can tell a configuration error from an outage.
pub const EX_USAGE: u8 = 64;
pub const EX_UNAVAILABLE: u8 = 69;

/// Parses the command line. If it asks for help or is wrong, prints that and returns the exit code.
pub fn parse_flags<Cli: Parser>() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        // If the stream is closed, there is no way to report that.
        drop(error.print());
        if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS }
    })
}

/// Prints what a command returns, if anything.
#[expect(clippy::print_stdout, reason = "what the command was asked to print")]
pub fn print(text: &str) -> ExitCode {
    if !text.is_empty() {
        println!("{text}");
    }
    ExitCode::SUCCESS
}

impl Program {
    /// Reports the error that ends the process.
    #[expect(clippy::print_stderr, reason = "the error that ends the process")]
    pub fn fail(&self, code: u8, error: &dyn Error) -> ExitCode {
        eprintln!("{}: {}", self.name, secrets::redact(&Chain(error).to_string()));
        ExitCode::from(code)
    }

    /// Prints the report of `check`.
    pub fn exit_report(&self, report: &Report) -> ExitCode {
        print(&report.to_string());
        ExitCode::from(report.exit_code())
    }

    /// Prints what a command returned, or reports why it failed.
    pub fn exit_code<E: Error>(&self, code: u8, result: Result<String, E>) -> ExitCode {
        match result {
            Ok(text) => print(&text),
            Err(error) => self.fail(code, &error),
        }
    }
}
