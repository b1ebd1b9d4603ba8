//! Repeats inputs: `cargo run -p fuzz-targets -- TARGET FILE…`. A broken promise panics.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool of developers, and no part of the program"
)]

use std::env;
use std::fs;
use std::process::ExitCode;

use fuzz_targets::{TARGETS, find};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let Some(target) = args.next().and_then(|name| find(&name)) else {
        eprintln!("usage: cargo run -p fuzz-targets -- TARGET FILE...\n\ntargets:");
        for target in TARGETS {
            eprintln!("  {:<13} {}", target.name, target.about);
        }
        return ExitCode::FAILURE;
    };
    for path in args {
        match fs::read(&path) {
            Ok(data) => (target.run)(&data),
            Err(error) => {
                eprintln!("cannot read {path}: {error}");
                return ExitCode::FAILURE;
            }
        }
        println!("{path}: passed");
    }
    ExitCode::SUCCESS
}
