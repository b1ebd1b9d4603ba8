//! A program with the verb `guard`, and an owner that can be killed, for `tests/processes.rs`.
//!
//! ```text
//! guarded guard OWNER -- PROGRAM [ARGS…]   as `codex-mcp guard` does
//! guarded own PROGRAM [ARGS…]              runs a program under a guard, and prints its first line
//! guarded cfg                              says whether it was built with --cfg portable
//! ```
#![expect(clippy::print_stdout, reason = "the test reads it")]

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use supervise::guard::{self, Streams};
use supervise::spawn::{Program, spawn};
use tokio::io::{AsyncBufReadExt, BufReader};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [verb, owner, _, program, args @ ..] if verb == "guard" => {
            let owner = owner.to_string_lossy().parse()?;
            Ok(guard::run(owner, Streams::Pipes, program, args))
        }
        [verb, program, args @ ..] if verb == "own" => {
            own(&Program::new(Path::new(program), args))?;
            Ok(ExitCode::SUCCESS)
        }
        [verb] if verb == "cfg" => {
            println!("portable: {}", cfg!(portable));
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("not `guard`, `own` or `cfg`".into()),
    }
}

fn own(program: &Program) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut process, streams) = spawn(program)?;
        let mut line = String::new();
        BufReader::new(streams.stdout).read_line(&mut line).await?;
        print!("{line}");
        process.wait().await?;
        Ok(())
    })
}
